// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Names of what Write leaves in its directory, beside NAME.crt and NAME.key of each server.
const (
	AuthorityFile  = "ca.crt"
	SigningFile    = "service-accounts.key"
	VerifyingFile  = "service-accounts.pub"
	Admin          = "admin"
	APIServer      = "kube-apiserver"
	KubeletClient  = "kube-apiserver-kubelet-client"
	LocalServer    = "local"
	ControlManager = "kube-controller-manager"
	Scheduler      = "kube-scheduler"
	Kubelet        = "kubelet"
)

// Cluster is what the certificates have to know of the cluster.
type Cluster struct {
	// Server is the API server's URL in the kubeconfigs.
	Server   string
	NodeName string
	NodeIP   net.IP
	// ServiceIP is the address of the kubernetes service.
	ServiceIP net.IP
}

// Write issues everything that the cluster's components need into dir.
func Write(dir string, c Cluster, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create certificate directory: %w", err)
	}
	authority, err := NewAuthority("tranche-cluster", now)
	if err != nil {
		return err
	}
	private, public, err := SigningKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		AuthorityFile: authority.Certificate(),
		SigningFile:   private,
		VerifyingFile: public,
	}
	for file, id := range identities(c) {
		pair, err := authority.Issue(id)
		if err != nil {
			return err
		}
		files[file+".crt"], files[file+".key"] = pair.Certificate, pair.Key
		files[file+".kubeconfig"] = Kubeconfig(c.Server, authority.Certificate(), pair)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
	}
	return nil
}

// identities lists who gets a certificate, by file name.
func identities(c Cluster) map[string]Identity {
	loopback := net.IPv4(127, 0, 0, 1)
	return map[string]Identity{
		APIServer: {
			Name: "kube-apiserver",
			DNS:  []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			IPs:  []net.IP{loopback, c.NodeIP, c.ServiceIP},
		},
		Kubelet: {
			Name: "system:node:" + c.NodeName, Groups: []string{"system:nodes"},
			DNS: []string{c.NodeName}, IPs: []net.IP{loopback, c.NodeIP},
		},
		LocalServer:    {Name: "localhost", DNS: []string{"localhost"}, IPs: []net.IP{loopback}},
		Admin:          {Name: "admin", Groups: []string{"system:masters"}},
		KubeletClient:  {Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
		ControlManager: {Name: "system:kube-controller-manager"},
		Scheduler:      {Name: "system:kube-scheduler"},
	}
}

// Kubeconfig renders the configuration of a client with a certificate, with everything inside.
func Kubeconfig(server string, authority []byte, client Pair) []byte {
	return kubeconfig(server, authority, "client-certificate-data: "+b64(client.Certificate)+"\n    client-key-data: "+b64(client.Key))
}

// TokenKubeconfig renders that of a client with a token, which has no character that YAML minds.
func TokenKubeconfig(server string, authority []byte, token string) []byte {
	return kubeconfig(server, authority, "token: "+token)
}

func b64(of []byte) string { return base64.StdEncoding.EncodeToString(of) }

func kubeconfig(server string, authority []byte, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: tranche
clusters:
- name: tranche
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: tranche
  user:
    %s
contexts:
- name: tranche
  context:
    cluster: tranche
    user: tranche
`, server, b64(authority), user)
}
