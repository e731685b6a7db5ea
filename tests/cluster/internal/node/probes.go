// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
	"github.com/tranche-dra/tranche/tests/cluster/internal/pki"
)

// api asks the cluster's components as its admin. It is a plain HTTP client:
// three questions do not pay for client-go.
type api struct{ http *http.Client }

func newAPI(s config.Settings) (*api, error) {
	certificate, err := tls.LoadX509KeyPair(s.PKI(pki.Admin+".crt"), s.PKI(pki.Admin+".key"))
	if err != nil {
		return nil, fmt.Errorf("load the admin's certificate: %w", err)
	}
	authority, err := os.ReadFile(s.PKI(pki.AuthorityFile))
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &api{http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: pool, MinVersion: tls.VersionTLS12},
		// A restarted server must be seen to be one.
		DisableKeepAlives: true,
	}}}, nil
}

func (a *api) get(ctx context.Context, url string, into any) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask component: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s", url, response.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode answer of %s: %w", url, err)
	}
	return nil
}

// probe says how a component's readiness is found out.
func (a *api) probe(component string) func(context.Context) error {
	url := map[string]string{
		config.Etcd:              "http://127.0.0.1:2379/readyz",
		config.APIServer:         config.Server + "/readyz",
		config.ControllerManager: "https://127.0.0.1:10257/healthz",
		config.Scheduler:         "https://127.0.0.1:10259/readyz",
		config.Kubelet:           "http://127.0.0.1:10248/healthz",
		config.FakeKubelet:       fmt.Sprintf("http://127.0.0.1:%d/healthz", config.FakeNodePort),
	}[component]
	if url == "" {
		return containerdReady
	}
	return func(ctx context.Context) error { return a.get(ctx, url, nil) }
}

// containerdReady relies on containerd serving its socket only once every plugin is loaded.
func containerdReady(ctx context.Context) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", config.ContainerdSocket)
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	return connection.Close()
}

// node is the part of a Node that matters here.
type node struct {
	Spec struct {
		Taints []struct{ Key string }
	}
	Status struct {
		Conditions []struct{ Type, Status, Message string }
	}
}

// usable says why a pod could not start now, or nothing.
func (a *api) usable(ctx context.Context) error {
	var n node
	if err := a.get(ctx, config.Server+"/api/v1/nodes/"+config.NodeName, &n); err != nil {
		return err
	}
	if err := n.ready(); err != nil {
		return err
	}
	return a.get(ctx, config.Server+"/api/v1/namespaces/default/serviceaccounts/default", nil)
}

func (n node) ready() error {
	for _, c := range n.Status.Conditions {
		if c.Type != "Ready" {
			continue
		}
		if c.Status != "True" {
			return fmt.Errorf("node is not Ready: %s", c.Message)
		}
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node has the taint %s", n.Spec.Taints[0].Key)
		}
		return nil
	}
	return errors.New("node has no Ready condition yet")
}
