// SPDX-License-Identifier: Apache-2.0

package view

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Objects are what the API server knows. Objects of other drivers may be among
// them and are passed over.
type Objects struct {
	Slices []resourceapi.ResourceSlice
	Claims []resourceapi.ResourceClaim
	// Pods of the namespaces whose claims are given. A pod that is missing is
	// shown without its containers.
	Pods []corev1.Pod
}

// Snapshot is what people see, and as JSON what programs see.
type Snapshot struct {
	// Cards by node and index.
	Cards []Card `json:"cards"`
	// Shares by card, then by claim.
	Shares []Share `json:"shares"`
}

// Of looks at the objects.
func Of(o Objects) Snapshot {
	cards := cardsOf(o.Slices)
	shares := sharesOf(o.Claims, cards)
	holders := holdersOf(o.Pods)
	for i := range shares {
		s := &shares[i]
		s.Holders = holders.of(s.claim, s.Request)
		if c, found := cards.at(s.Node, s.Device); found {
			c.take(s)
		}
	}
	return Snapshot{Cards: cards.sorted(), Shares: shares}
}

// Amount is something of which a card has a total. Free is below zero where
// more was handed out than there is.
type Amount[T ~int | ~int64] struct {
	Free  T `json:"free"`
	Total T `json:"total"`
}

func (a *Amount[T]) take(n T) {
	if a != nil {
		a.Free -= n
	}
}

// Card is one card as it is published. An amount that is nil is not known, or is
// nothing that this card hands out.
type Card struct {
	Node string `json:"node"`
	// Device is the name by which allocations call the card.
	Device string `json:"device"`
	UUID   string `json:"uuid,omitempty"`
	// Index in the driver's list; nil where it is not published.
	Index  *int   `json:"index,omitempty"`
	Model  string `json:"model,omitempty"`
	Vendor string `json:"vendor,omitempty"`
	// Shared cards are handed out in parts, others only whole.
	Shared       bool                  `json:"shared"`
	Memory       *Amount[card.MiB]     `json:"memoryMiB,omitempty"`
	Cores        *Amount[card.Percent] `json:"cores,omitempty"`
	OfflineCores *Amount[card.Percent] `json:"offlineCores,omitempty"`
	Slots        *Amount[int]          `json:"slots,omitempty"`
	// Taints that stand; none means healthy.
	Taints []Taint `json:"taints,omitempty"`
	// Published is the card as its driver publishes it.
	Published *resourceapi.Device `json:"-"`
}

// Taint is one reason not to use a card.
type Taint struct {
	// Kind is the kind of fault, or the full key of a taint that is not ours.
	Kind string `json:"kind"`
	// Message is what happened, in the characters that a label may have.
	Message string                        `json:"message,omitempty"`
	Effect  resourceapi.DeviceTaintEffect `json:"effect"`
}

// take subtracts what the share holds. A share of a card that is not shared is
// the whole card.
func (c *Card) take(s *Share) {
	if !c.Shared {
		for _, all := range []*Amount[card.Percent]{c.Cores, c.OfflineCores} {
			if all != nil {
				all.Free = 0
			}
		}
		if c.Memory != nil {
			c.Memory.Free = 0
		}
		return
	}
	c.Cores.take(s.Cores)
	c.OfflineCores.take(s.OfflineCores)
	c.Memory.take(s.Memory)
	c.Slots.take(s.slots)
}

// Share is one part of one card, held by one claim.
type Share struct {
	Node   string `json:"node"`
	Device string `json:"device"`
	// UUID and Index of the card; empty and nil where no slice shows the card
	// at present.
	UUID      string `json:"uuid,omitempty"`
	Index     *int   `json:"index,omitempty"`
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	ClaimUID  string `json:"claimUID"`
	// Request is "main/sub" for a subrequest.
	Request string `json:"request"`
	ShareID string `json:"shareID,omitempty"`
	// Cores and OfflineCores in percent of the card. Memory is zero where the
	// card's size is unknown.
	Cores        card.Percent `json:"cores"`
	OfflineCores card.Percent `json:"offlineCores"`
	Memory       card.MiB     `json:"memoryMiB"`
	Whole        bool         `json:"whole"`
	// Policy is empty where the default of the node decides: the API server
	// does not know that until the share has been measured beside others.
	Policy share.Policy `json:"policy,omitempty"`
	Class  share.Class  `json:"class,omitempty"`
	// BurstCeiling as configured, nil where nothing was said.
	BurstCeiling *card.Percent `json:"burstCeiling,omitempty"`
	// ConfigError says why policy and class cannot be read.
	ConfigError string `json:"configError,omitempty"`
	// Holders of the claim, by name. Empty while no pod uses it.
	Holders []Holder `json:"holders,omitempty"`

	claim *resourceapi.ResourceClaim
	slots int
}

// Holder is who uses a share, nearly always a pod.
type Holder struct {
	// Resource is what kind of thing it is where it is no pod, such as
	// "podgroups.scheduling.k8s.io".
	Resource string `json:"resource,omitempty"`
	Name     string `json:"name"`
	UID      string `json:"uid"`
	// Phase of the pod, empty where the pod was not among the objects.
	Phase corev1.PodPhase `json:"phase,omitempty"`
	// Containers that the share is attached to, in the order of the pod.
	Containers []string `json:"containers,omitempty"`
}
