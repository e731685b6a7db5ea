// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// CardSource says where a node's cards are looked for.
type CardSource string

const (
	// CardsAuto is sim where a fleet file is named and nvml elsewhere.
	CardsAuto CardSource = "auto"
	// CardsNVML asks NVIDIA's management library.
	CardsNVML CardSource = "nvml"
	// CardsSim reads a fleet file of simulated cards.
	CardsSim CardSource = "sim"
)

// CardSources in the order in which messages list them.
func CardSources() []CardSource { return []CardSource{CardsAuto, CardsNVML, CardsSim} }

// NodeConfig is the configuration file of tranche-node. A flag that is given on
// the command line wins over the file. An empty text means unset, unless the
// field says otherwise. Logging is configured by flags only.
//
// +kubebuilder:object:root=true
type NodeConfig struct {
	metav1.TypeMeta `json:",inline"`

	// NodeName is the node's name in the API server. Required; usually given
	// by flag, because a file is shared by all nodes.
	NodeName string `json:"nodeName,omitempty"`

	// KubeletRoot is kubelet's directory. Default /var/lib/kubelet.
	KubeletRoot string `json:"kubeletRoot,omitempty"`
	// CDIRoot is where CDI specs are written. Default /var/run/cdi.
	CDIRoot string `json:"cdiRoot,omitempty"`
	// StateDir holds the records, the directories of the shares and the
	// libraries, on a disk that outlives the process. Default /var/lib/tranche.
	StateDir string `json:"stateDir,omitempty"`
	// RunDir holds what need not outlive a boot: simulated cards, and what the
	// arbiter keeps. Default /run/tranche.
	RunDir string `json:"runDir,omitempty"`
	// RuntimeDir holds the versions of the sharing runtime that containers
	// mount. Default: the directory "runtime" in StateDir.
	RuntimeDir string `json:"runtimeDir,omitempty"`
	// RuntimeSource holds the version that comes with this driver, to tell which
	// of those in RuntimeDir new claims take. Default /usr/lib/tranche.
	RuntimeSource string `json:"runtimeSource,omitempty"`
	// DriverRoot is the directory on the host that the graphics driver is
	// installed under. Default "/". Specs name files by this path.
	DriverRoot string `json:"driverRoot,omitempty"`
	// DriverRootMount is where this process sees DriverRoot: a container has
	// the host's files elsewhere. Default: the same as DriverRoot.
	DriverRootMount string `json:"driverRootMount,omitempty"`

	// CardSource is auto, nvml or sim. Default auto.
	CardSource CardSource `json:"cardSource,omitempty"`
	// SimFleet is the file that lists the simulated cards. Needed by sim.
	SimFleet string `json:"simFleet,omitempty"`

	// DefaultPolicy holds for shares whose configuration names no policy, on nodes
	// that have no label tranche.dev/default-policy.
	// Default guaranteed-burst-share: a share is sure of its part and no idle compute
	// is wasted.
	DefaultPolicy share.Policy `json:"defaultPolicy,omitempty"`
	// SlotsPerCard is how many shares a card takes at most, 1 to 128. Default 16.
	SlotsPerCard *int `json:"slotsPerCard,omitempty"`
	// MemoryReserve is kept free on every card on top of what the driver
	// keeps for itself, in whole MiB. Default 0.
	MemoryReserve *resource.Quantity `json:"memoryReserve,omitempty"`

	// MetricsAddress is the host:port of the HTTP server with /metrics and
	// /readyz. Default ":9478"; the empty text switches it off.
	MetricsAddress *string `json:"metricsAddress,omitempty"`
	// HealthAddress is the host:port of the gRPC health service. Default
	// ":9479"; the empty text switches it off.
	HealthAddress *string `json:"healthAddress,omitempty"`

	// ReconcileInterval is the time between two comparisons of the records
	// with the disk, at least 1s. Default 10s: a container that restarts needs
	// its spec again.
	ReconcileInterval *metav1.Duration `json:"reconcileInterval,omitempty"`
	// StaleGrace is how long a prepared claim must have been gone from the API
	// server and from kubelet before it is released without being asked to.
	// Default 5m.
	StaleGrace *metav1.Duration `json:"staleGrace,omitempty"`

	// ArbiterTimeout is how long preparing a claim waits for tranche-arbiter to
	// serve its shares before the call fails, more than 0s and at most 30s.
	// Default 5s.
	ArbiterTimeout *metav1.Duration `json:"arbiterTimeout,omitempty"`

	// ForceOldKubernetes publishes shareable cards even where the API server
	// is of a version that is known to allocate shares wrongly (before 1.36).
	ForceOldKubernetes bool `json:"forceOldKubernetes,omitempty"`
}

// NewNodeConfig is an empty NodeConfig that says what it is.
func NewNodeConfig() *NodeConfig {
	return &NodeConfig{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: KindNodeConfig}}
}

// MemoryReserveMiB is the reserve of each card, 0 where nothing was said.
func (c *NodeConfig) MemoryReserveMiB() card.MiB {
	if c.MemoryReserve == nil || c.MemoryReserve.Sign() <= 0 {
		return 0
	}
	return card.FloorMiB(uint64(c.MemoryReserve.Value())) //nolint:gosec // positive, checked above
}
