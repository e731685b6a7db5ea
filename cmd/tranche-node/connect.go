// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tranche-dra/tranche/pkg/labels"
)

// clients are what the process needs of the API server.
type clients struct {
	kubernetes kubernetes.Interface
	// nodes and claims of the cluster, by their metadata.
	nodes, claims labels.Objects
	nodeUID       types.UID
	// nodeUIDNow is the node's UID as the token says at present, empty where it
	// says none; nil where the command line says it.
	nodeUIDNow func() types.UID
}

// connect makes the client. It does not call the API server.
func connect(o *options, nodeName string) (clients, error) {
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return clients{}, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "tranche-node/" + version
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// A pod with many claims, or a node that starts many pods, must not wait
	// for client-go's default of 5 requests a second.
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make client for the API server: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make client for metadata: %w", err)
	}
	c := clients{
		kubernetes: client, nodeUID: types.UID(o.nodeUID),
		nodes:  objects.Resource(corev1.SchemeGroupVersion.WithResource("nodes")),
		claims: objects.Resource(resourceapi.SchemeGroupVersion.WithResource("resourceclaims")),
	}
	if o.nodeUID == "" {
		c.nodeUIDNow = func() types.UID { return nodeUIDOf(tokenOf(config), nodeName) }
		c.nodeUID = c.nodeUIDNow()
	}
	return c, nil
}

// errNodeReplaced ends the process, which takes the new UID when it starts again.
var errNodeReplaced = errors.New("the node's object was deleted and made again: the slices of the old one are deleted as often as they are published")

// watchNode ends with an error when the node was registered anew. Kubelet
// renews the token then, and the slices belong to an owner that is gone.
func watchNode(ctx context.Context, c clients, every time.Duration) error {
	if c.nodeUIDNow == nil || c.nodeUID == "" {
		return nil
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if now := c.nodeUIDNow(); now != "" && now != c.nodeUID {
			return fmt.Errorf("node UID was %s and is %s: %w", c.nodeUID, now, errNodeReplaced)
		}
	}
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("%w (outside of a cluster, --kubeconfig is needed)", err)
	}
	return config, nil
}

func tokenOf(config *rest.Config) string {
	if config.BearerTokenFile != "" {
		if raw, err := os.ReadFile(config.BearerTokenFile); err == nil {
			return strings.TrimSpace(string(raw))
		}
	}
	return config.BearerToken
}

// nodeUIDOf reads the node's UID from a service account's token, which the API
// server writes there for pods that are bound to a node. It spares the
// permission to read nodes. The token is our own and the UID only names the
// owner of our slices, so its signature does not matter. Empty when the token
// does not say, or speaks of another node.
func nodeUIDOf(token, nodeName string) types.UID {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			Node struct {
				Name string    `json:"name"`
				UID  types.UID `json:"uid"`
			} `json:"node"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Kubernetes.Node.Name != nodeName {
		return ""
	}
	return claims.Kubernetes.Node.UID
}
