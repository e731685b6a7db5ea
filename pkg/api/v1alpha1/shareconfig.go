// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// ShareConfig says how a share is treated. It travels as opaque parameters of
// driver gpu.tranche.dev in DeviceClasses and ResourceClaims. Several of them
// may apply to one share: see Merge. How much the share holds is not said here
// but by the capacity that its request names.
//
// +kubebuilder:object:root=true
type ShareConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Policy says how compute is divided on the card. Unset means the
	// default policy of the node on which the share lands.
	Policy *share.Policy `json:"policy,omitempty"`

	// Class is the share's priority on its card. Unset means "none".
	Class *share.Class `json:"class,omitempty"`

	// Burst bounds what the share may use on top of its part. Only
	// guaranteed-burst-share and native-burst-share take it.
	Burst *Burst `json:"burst,omitempty"`
}

// Burst bounds the use of idle compute.
type Burst struct {
	// Ceiling is the most compute that the share may use while the card is
	// otherwise idle, in percent of the card, 1 to 100. Unset means 100.
	Ceiling *card.Percent `json:"ceiling,omitempty"`
}

// NewShareConfig is an empty ShareConfig that says what it is.
func NewShareConfig() *ShareConfig {
	return &ShareConfig{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: KindShareConfig}}
}

// Merge lays configs over each other, field by field: a field that a later one
// sets wins, a field that it leaves unset changes nothing. Pass them in the
// order of the allocation (those of the class before those of the claim). A nil
// config is skipped. The result shares no memory with the arguments.
func Merge(configs ...*ShareConfig) *ShareConfig {
	merged := NewShareConfig()
	for _, c := range configs {
		if c == nil {
			continue
		}
		layer := c.DeepCopy()
		if layer.Policy != nil {
			merged.Policy = layer.Policy
		}
		if layer.Class != nil {
			merged.Class = layer.Class
		}
		if layer.Burst != nil {
			if merged.Burst == nil {
				merged.Burst = &Burst{}
			}
			if layer.Burst.Ceiling != nil {
				merged.Burst.Ceiling = layer.Burst.Ceiling
			}
		}
	}
	return merged
}

// takesBurst lists the policies under which a share may go past its part.
func takesBurst() []share.Policy {
	return slices.DeleteFunc(share.Policies(), func(p share.Policy) bool { return !p.Bursts() })
}

// BurstCeiling is the ceiling that holds, in percent of the card: 100 where
// nothing was said. Under the policies that take no ceiling it means nothing.
func (c *ShareConfig) BurstCeiling() card.Percent {
	if c.Burst == nil || c.Burst.Ceiling == nil {
		return card.WholeCompute
	}
	return *c.Burst.Ceiling
}
