// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/tranche-dra/tranche/pkg/share"
)

// maxMessage is what the API server takes, in bytes.
const maxMessage = 1024

// Cluster writes events to the API server. Equal ones are counted together and
// floods are cut by client-go.
type Cluster struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	node        *corev1.ObjectReference
}

// NewCluster makes the events of a component on a node. It does not call the API
// server. Close must be called.
func NewCluster(ctx context.Context, config *rest.Config, component, nodeName string) (*Cluster, error) {
	client, scheme, err := newClient(config)
	if err != nil {
		return nil, fmt.Errorf("make client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(sink{ctx, client})
	return &Cluster{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component, Host: nodeName}),
		// Kubelet names the node as its own UID, and "kubectl describe node" looks for that.
		node: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: types.UID(nodeName)},
	}, nil
}

// newClient knows events only.
func newClient(config *rest.Config) (*rest.RESTClient, *runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Event{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	return client, scheme, err
}

// Claim warns the owner of a claim.
func (c *Cluster) Claim(claim share.Claim, reason, message string) {
	c.recorder.Event(&corev1.ObjectReference{
		APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: types.UID(claim.UID),
	}, corev1.EventTypeWarning, reason, shorten(message, maxMessage))
}

// Node warns the administrator of this node.
func (c *Cluster) Node(reason, message string) {
	c.recorder.Event(c.node, corev1.EventTypeWarning, reason, shorten(message, maxMessage))
}

// Close stops writing.
func (c *Cluster) Close() { c.broadcaster.Shutdown() }

// shorten cuts a text to at most limit bytes, between characters.
func shorten(text string, limit int) string {
	const more = "..."
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= limit {
		return text
	}
	cut := limit - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

// sink sends events, and is asked by client-go only.
type sink struct {
	ctx    context.Context // the interface has none
	client *rest.RESTClient
}

var _ record.EventSink = sink{}

// Create implements record.EventSink.
func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.do(s.client.Post(), event, "", event)
}

// Update implements record.EventSink.
func (s sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.do(s.client.Put(), event, event.Name, event)
}

// Patch implements record.EventSink.
func (s sink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.do(s.client.Patch(types.StrategicMergePatchType), event, event.Name, patch)
}

func (s sink) do(request *rest.Request, event *corev1.Event, name string, body any) (*corev1.Event, error) {
	request = request.Namespace(event.Namespace).Resource("events").Body(body)
	if name != "" {
		request = request.Name(name)
	}
	answer := &corev1.Event{}
	return answer, request.Do(s.ctx).Into(answer)
}
