// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// ShareStatus is what a share was promised of its card's compute and what it got:
// status.devices[].data of a ResourceClaim, in the entry of the share. It is
// measured by the node's arbiter, and written only now and then: while the share
// wants compute, and when it has changed noticeably. Percents are of the card.
//
// A share that is alone on its card under a policy that lets it use all of it is
// not held to anything, and so not measured.
//
// +kubebuilder:object:root=true
type ShareStatus struct {
	metav1.TypeMeta `json:",inline"`

	Policy share.Policy `json:"policy"`
	Class  share.Class  `json:"class"`
	// GrantedPercent is the compute that the claim holds: cores, or offlineCores of
	// an offline share. What it means depends on the policy.
	GrantedPercent card.Percent `json:"grantedPercent"`
	// BurstCeilingPercent holds at present, under the policies that have a ceiling.
	BurstCeilingPercent *card.Percent `json:"burstCeilingPercent,omitempty"`

	// From and To bound the time that was measured; of that, the share had work for
	// the card in WantedSeconds. All below is of that time.
	From          metav1.Time `json:"from"`
	To            metav1.Time `json:"to"`
	WantedSeconds float64     `json:"wantedSeconds"`
	// EntitledPercent is the part of the card that the share should have had by its
	// policy, given who else wanted the card. AchievedPercent is what it had.
	EntitledPercent float64 `json:"entitledPercent"`
	AchievedPercent float64 `json:"achievedPercent"`
	// ThrottledSeconds is how long it had to wait.
	ThrottledSeconds float64 `json:"throttledSeconds"`
	// Preemptions is how often the card was taken from the share while it had work
	// for it, and the latencies are how long it took until the share was off the card,
	// in the median and in 99 of 100 cases. They are left out where there was none.
	Preemptions                      int64    `json:"preemptions"`
	PreemptionLatencyP50Milliseconds *float64 `json:"preemptionLatencyP50Milliseconds,omitempty"`
	PreemptionLatencyP99Milliseconds *float64 `json:"preemptionLatencyP99Milliseconds,omitempty"`
}

// NewShareStatus is an empty ShareStatus that says what it is.
func NewShareStatus() *ShareStatus {
	return &ShareStatus{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: KindShareStatus}}
}
