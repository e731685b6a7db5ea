// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"

	"github.com/tranche-dra/tranche/tests/cluster/internal/pki"
)

// The components' names, which are also those of their programs and logs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	// FakeKubelet is there only with Settings.FakeNodes.
	FakeKubelet = "kwok"
)

// FakeNodePort is where FakeKubelet tells its health.
const FakeNodePort = 10247

// Components lists them in the order in which they can be started.
func Components() []string {
	return []string{Etcd, APIServer, Containerd, ControllerManager, Scheduler, Kubelet, FakeKubelet}
}

// Foreign tells whether a component is not of Kubernetes and does not know its flags.
func Foreign(component string) bool {
	return component == Etcd || component == Containerd || component == FakeKubelet
}

// Program is the file that a component runs.
func Program(s Settings, component string) string {
	if component == Scheduler && s.Scheduler != "" {
		return s.Scheduler
	}
	return s.Binary(component)
}

// Args is a component's command line.
func Args(s Settings, component string) []string {
	var args []string
	switch component {
	case Etcd:
		args = etcd(s)
	case APIServer:
		args = apiServer(s)
	case Containerd:
		args = []string{"--config=" + s.Etc("containerd.toml")}
	case ControllerManager:
		args = controllerManager(s)
	case Scheduler:
		args = append([]string{"--config=" + s.Etc("scheduler.yaml")}, local(s, pki.Scheduler)...)
	case Kubelet:
		args = kubelet(s)
	case FakeKubelet:
		args = fakeKubelet(s)
	}
	if s.FeatureGates != "" && !Foreign(component) {
		args = append(args, "--feature-gates="+s.FeatureGates)
	}
	return append(args, s.ExtraArgs[component]...)
}

func etcd(s Settings) []string {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return []string{
		"--data-dir=" + s.Data("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", // the data does not outlive the cluster
		"--log-level=warn",
	}
}

func apiServer(s Settings) []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=443", fmt.Sprintf("--advertise-address=%s", NodeIP),
		"--tls-cert-file=" + s.PKI(pki.APIServer+".crt"), "--tls-private-key-file=" + s.PKI(pki.APIServer+".key"),
		"--client-ca-file=" + s.PKI(pki.AuthorityFile),
		"--kubelet-client-certificate=" + s.PKI(pki.KubeletClient+".crt"), "--kubelet-client-key=" + s.PKI(pki.KubeletClient+".key"),
		"--kubelet-certificate-authority=" + s.PKI(pki.AuthorityFile), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.PKI(pki.VerifyingFile), "--service-account-signing-key-file=" + s.PKI(pki.SigningFile),
		"--service-cluster-ip-range=" + ServiceNetwork,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		// The service's address is the node's own: there is nothing to point an endpoint at.
		"--endpoint-reconciler-type=none",
		// Webhooks are reached at their pods: a service's own address needs kube-proxy.
		"--enable-aggregator-routing=true",
		"--allow-privileged=true",
	}
}

func controllerManager(s Settings) []string {
	return append([]string{
		"--kubeconfig=" + s.PKI(pki.ControlManager+".kubeconfig"),
		"--leader-elect=false",
		// Each controller's own account: the shared one may not make claims from templates.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + s.PKI(pki.SigningFile), "--root-ca-file=" + s.PKI(pki.AuthorityFile),
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}, local(s, pki.ControlManager)...)
}

// local makes a component serve its health and metrics on the loopback address.
func local(s Settings, user string) []string {
	kubeconfig := s.PKI(user + ".kubeconfig")
	return []string{
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + s.PKI(pki.LocalServer+".crt"), "--tls-private-key-file=" + s.PKI(pki.LocalServer+".key"),
	}
}

func kubelet(s Settings) []string {
	return []string{
		"--config=" + s.Etc("kubelet.yaml"), "--kubeconfig=" + s.PKI(pki.Kubelet+".kubeconfig"),
		"--root-dir=" + KubeletDir,
		"--hostname-override=" + NodeName, fmt.Sprintf("--node-ip=%s", NodeIP),
		"--v=" + strconv.Itoa(s.Verbosity),
	}
}

func fakeKubelet(s Settings) []string {
	return []string{
		"--kubeconfig=" + s.PKI(pki.Admin+".kubeconfig"), "--config=" + s.Etc("kwok.yaml"),
		"--manage-nodes-with-annotation-selector=" + FakeNodeAnnotation,
		"--node-lease-duration-seconds=40", // as kubelet's
		fmt.Sprintf("--server-address=127.0.0.1:%d", FakeNodePort),
	}
}
