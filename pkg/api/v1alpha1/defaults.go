// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Defaults of NodeConfig.
const (
	DefaultKubeletRoot    = "/var/lib/kubelet"
	DefaultCDIRoot        = "/var/run/cdi"
	DefaultStateDir       = "/var/lib/tranche"
	DefaultRunDir         = "/run/tranche"
	DefaultRuntimeSource  = "/usr/lib/tranche"
	DefaultDriverRoot     = "/"
	DefaultSlotsPerCard   = 16
	DefaultMetricsAddress = ":9478"
	DefaultHealthAddress  = ":9479"
	// DefaultPolicy of a node that was told nothing.
	DefaultPolicy = share.GuaranteedBurst

	DefaultReconcileInterval = 10 * time.Second
	DefaultStaleGrace        = 5 * time.Minute
	DefaultArbiterTimeout    = 5 * time.Second
)

// SetDefaults fills what a merged ShareConfig leaves open: the policy is the
// node's, the class is none, and under a policy that takes a ceiling the ceiling
// is the whole card. Merge first: a default must never win over a later layer.
func SetDefaults(c *ShareConfig, nodeDefault share.Policy) {
	if c.Policy == nil {
		c.Policy = &nodeDefault
	}
	if c.Class == nil {
		class := share.NoClass
		c.Class = &class
	}
	if !c.Policy.Bursts() {
		return
	}
	if c.Burst == nil {
		c.Burst = &Burst{}
	}
	if c.Burst.Ceiling == nil {
		ceiling := card.WholeCompute
		c.Burst.Ceiling = &ceiling
	}
}

// SetNodeDefaults fills what file and flags leave open. The node's name has no
// default.
func SetNodeDefaults(c *NodeConfig) {
	setDefault(&c.KubeletRoot, DefaultKubeletRoot)
	setDefault(&c.CDIRoot, DefaultCDIRoot)
	setDefault(&c.StateDir, DefaultStateDir)
	setDefault(&c.RunDir, DefaultRunDir)
	setDefault(&c.RuntimeDir, filepath.Join(c.StateDir, "runtime"))
	setDefault(&c.RuntimeSource, DefaultRuntimeSource)
	setDefault(&c.DriverRoot, DefaultDriverRoot)
	setDefault(&c.DriverRootMount, c.DriverRoot)
	setDefault(&c.CardSource, CardsAuto)
	setDefault(&c.DefaultPolicy, DefaultPolicy)
	setUnset(&c.SlotsPerCard, DefaultSlotsPerCard)
	setUnset(&c.MemoryReserve, *resource.NewQuantity(0, resource.BinarySI))
	setUnset(&c.MetricsAddress, DefaultMetricsAddress)
	setUnset(&c.HealthAddress, DefaultHealthAddress)
	setUnset(&c.ReconcileInterval, metav1.Duration{Duration: DefaultReconcileInterval})
	setUnset(&c.StaleGrace, metav1.Duration{Duration: DefaultStaleGrace})
	setUnset(&c.ArbiterTimeout, metav1.Duration{Duration: DefaultArbiterTimeout})
}

func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

func setUnset[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
