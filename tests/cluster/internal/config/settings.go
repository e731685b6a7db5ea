// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"path/filepath"
)

// What every cluster has alike. Each has its own network, so that nothing of this collides.
const (
	// RunDir is a directory on the node's private /run.
	RunDir = "/run/tranche-cluster"
	// ContainerdSocket and ControlSocket lie there because a path of a socket may have 107 bytes at most.
	ContainerdSocket = RunDir + "/containerd.sock"
	ControlSocket    = RunDir + "/control.sock"
	// UsualContainerdSocket is a link to it, where everybody expects it.
	UsualContainerdSocket = "/run/containerd/containerd.sock"
	// KubeletDir is kubelet's usual directory: drivers look for its sockets there.
	KubeletDir = "/var/lib/kubelet"
	// StateDir is where the driver under test keeps its records, on the node's
	// disk: a cluster must not meet what another left.
	StateDir = "/var/lib/tranche"
	// NodeName is the only node that exists.
	NodeName = "node-1"
	// FakeNodeAnnotation marks the objects of nodes that do not.
	FakeNodeAnnotation = "kwok.x-k8s.io/node=fake"
	// Server is how components on the node reach the API server.
	Server = "https://127.0.0.1"
	// PauseImage holds the namespaces of every pod.
	PauseImage = "localhost/tranche/pause:1"
	// NodePrefix is the network length of NodeIP, PodNetwork where bridged pods live.
	NodePrefix = 24
	PodNetwork = "10.244.0.0/24"
	// ServiceNetwork is where services get their addresses from. There is no kube-proxy:
	// only ServiceIP answers, which is the node's own.
	ServiceNetwork = "10.96.0.0/16"
)

// Addresses of the node.
var (
	NodeIP    = net.IPv4(10, 99, 0, 1)
	Gateway   = net.IPv4(10, 99, 0, 254) // nobody: a default route has to lead somewhere
	ServiceIP = net.IPv4(10, 96, 0, 1)
	// DNSIP is where pods look names up. Nobody answers there: as an address of the
	// node's it makes a lookup fail at once, where none would warn at every pod.
	DNSIP = net.IPv4(10, 96, 0, 10)
)

// MountPoints are directories of the machine that every cluster has for itself:
// kubelet's, the driver's, those where kubelet links logs, and where CNI keeps results. Their
// paths are compiled into the programs, or expected there by others.
func MountPoints() []string {
	return []string{KubeletDir, StateDir, "/var/log/containers", "/var/lib/cni"}
}

// Settings are what differs between clusters.
type Settings struct {
	// Work is the cluster's directory, Binaries the one with the programs.
	Work     string
	Binaries string
	// Runc is the OCI runtime.
	Runc string
	// Cgroup is the path of the cluster's cgroup from the root of each hierarchy.
	Cgroup string
	// CDIDir is where containerd looks for CDI specs.
	CDIDir string
	// FeatureGates are passed to every Kubernetes component: Name=true,Other=false.
	FeatureGates string
	// Verbosity of kubelet's log.
	Verbosity int
	// Scheduler runs in place of the set's kube-scheduler where it is not empty.
	Scheduler string
	// SchedulerConfig is a KubeSchedulerConfiguration for it; what it says of
	// reaching the API server and of leader election does not count. Empty is
	// Kubernetes' default.
	SchedulerConfig string
	// SchedulerAccount is a service account, NAMESPACE/NAME, whose rights the scheduler
	// has in place of those of system:kube-scheduler, where it is not empty.
	SchedulerAccount string
	// FakeNodes is whether nodes marked by FakeNodeAnnotation are kept Ready and
	// the pods there running.
	FakeNodes bool
	// ExtraArgs are appended to a component's command line, by its name.
	ExtraArgs map[string][]string
}

// Etc is a path below the configuration files.
func (s Settings) Etc(parts ...string) string { return s.path("etc", parts) }

// Logs is a path below the logs.
func (s Settings) Logs(parts ...string) string { return s.path("log", parts) }

// PKI is a path below the certificates and kubeconfigs.
func (s Settings) PKI(parts ...string) string { return s.path("pki", parts) }

// Data is a path below what the components store.
func (s Settings) Data(parts ...string) string { return s.path("data", parts) }

func (s Settings) path(first string, rest []string) string {
	return filepath.Join(append([]string{s.Work, first}, rest...)...)
}

// Binary is the path of a program.
func (s Settings) Binary(name string) string { return filepath.Join(s.Binaries, name) }
