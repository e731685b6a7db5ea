// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

// wish is what a pod's claims ask for, as far as it can be told from them.
type wish struct {
	// parts, and for each of them what it asks of a card's attributes, what taints it
	// tolerates, which request it comes from and what is wrong with it for any card.
	parts []placement.Part
	of    []asked
	// complete says that a node with room for the parts is one on which the
	// allocator succeeds. Otherwise the parts are necessary, and the allocator is
	// asked too.
	complete bool
	// partial says that some request has no part.
	partial bool
	// prioritized requests give alternatives, which DynamicResources scores.
	prioritized bool
	// tolerant says that some request tolerates some taint.
	tolerant bool
}

type asked struct {
	selection   selection
	tolerations []resourceapi.DeviceToleration
	// claim it is of.
	claim types.UID
	// request is "claim, request", for people.
	request string
	// impossible is why no card can ever take it.
	impossible string
}

// has tells whether the claim is one of those that the pod still has to be given.
func (w *wish) has(claim types.UID) bool {
	return slices.ContainsFunc(w.of, func(a asked) bool { return a.claim == claim })
}

// classes finds device classes.
type classes interface {
	Get(name string) (*resourceapi.DeviceClass, error)
}

// wishOf reads the claims of a pod that are not allocated yet.
func wishOf(pod *v1.Pod, manager fwk.SharedDRAManager) *wish {
	w := &wish{complete: true}
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // PreFilter of the wrapped plug-in says what is to be said
		}
		claim, err := manager.ResourceClaims().Get(pod.Namespace, *name)
		switch {
		case err != nil || claim.Status.Allocation != nil:
			w.complete = false
		default:
			w.addClaim(claim, manager.DeviceClasses())
		}
	}
	if usesExtended(pod, manager.DeviceClassResolver()) {
		w.complete, w.partial = false, true
	}
	return w
}

// usesExtended tells whether some of the pod's limits may become a claim.
func usesExtended(pod *v1.Pod, resolver fwk.DeviceClassResolver) bool {
	if resolver == nil {
		return false
	}
	asks := func(c v1.Container) bool {
		for name := range c.Resources.Requests {
			if resolver.GetDeviceClass(name) != nil {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}

func (w *wish) addClaim(claim *resourceapi.ResourceClaim, known classes) {
	if len(claim.Spec.Devices.Constraints) > 0 {
		w.complete = false
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		exactly := request.Exactly
		if exactly == nil {
			w.complete, w.partial, w.prioritized = false, true, true
			continue
		}
		class, err := known.Get(exactly.DeviceClassName)
		counted := exactly.AllocationMode == resourceapi.DeviceAllocationModeExactCount || exactly.AllocationMode == ""
		if err != nil || !counted || exactly.AdminAccess != nil && *exactly.AdminAccess {
			w.complete, w.partial = false, true
			continue
		}
		part := placement.Part{Cards: int(max(exactly.Count, 1))}
		// A configuration that cannot be read is refused by the node, which says so.
		part.Class, _ = claims.ClassAsked(&claim.Spec, request.Name, class)
		a := asked{
			claim:       claim.UID,
			selection:   newSelection(class, exactly.Selectors),
			tolerations: exactly.Tolerations,
			request:     fmt.Sprintf("claim %s, request %s", claim.Name, request.Name),
		}
		var exact bool
		part.Amount, part.Whole, exact, a.impossible = amountOf(exactly.Capacity)
		w.complete = w.complete && exact
		if part.Class == share.NoClass && part.Amount.Offline > 0 {
			part.Class = share.Offline // as the node takes it
		}
		w.tolerant = w.tolerant || len(a.tolerations) > 0
		w.parts = append(w.parts, part)
		w.of = append(w.of, a)
	}
}

// amountOf is what the request takes of a card. What is left out is taken whole,
// but for offline compute. Not exact is an amount that depends on the card; it
// is then the least that it can be.
func amountOf(capacity *resourceapi.CapacityRequirements) (amount placement.Amount, whole, exact bool, impossible string) {
	if capacity == nil || len(capacity.Requests) == 0 {
		return amount, true, true, ""
	}
	exact = true
	amount.Compute = placement.WholeCompute
	amount.Memory = -1
	for name, q := range capacity.Requests {
		switch name {
		case claims.Cores:
			amount.Compute, impossible = compute("cores", q, impossible)
		case claims.OfflineCores:
			amount.Offline, impossible = compute("offlineCores", q, impossible)
		case claims.Memory:
			amount.Memory, impossible = memory(q, impossible)
		case published.CapacitySlots:
			if q.CmpInt64(1) > 0 {
				impossible = fmt.Sprintf("asks for %s slots, a share takes 1", q.String())
			}
		default:
			impossible = fmt.Sprintf("asks for %q, which no card has: cores, offlineCores and memory are what a share asks for", name)
		}
	}
	if amount.Memory < 0 {
		amount.Memory, exact = published.MinMemory, false
	}
	return amount, false, exact, impossible
}

func compute(name string, q resource.Quantity, otherwise string) (placement.Milli, string) {
	if q.CmpInt64(int64(card.WholeCompute)) > 0 {
		return placement.WholeCompute, fmt.Sprintf("asks for %s of %s on one card, the most is 100; for whole cards, name a count and no capacity", q.String(), name)
	}
	return placement.FromPercent(card.Percent(max(q.Value(), 0))), otherwise
}

// maxMemory is far above what any card has, and far from overflowing.
const maxMemory card.MiB = 1 << 40

func memory(q resource.Quantity, otherwise string) (card.MiB, string) {
	if q.CmpInt64(maxMemory.Bytes()) > 0 {
		return maxMemory, otherwise
	}
	return max(card.CeilMiB(q.Value()), published.MinMemory), otherwise
}
