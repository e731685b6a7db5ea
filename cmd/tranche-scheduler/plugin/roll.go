// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// claimsKnown finds claims with their allocations, written already or not.
type claimsKnown interface {
	claim(namespace, name string) *resourceapi.ResourceClaim
}

// live is the claims as they are whenever it is asked.
type live struct{ fwk.ResourceClaimTracker }

func (l live) claim(namespace, name string) *resourceapi.ResourceClaim {
	claim, err := l.Get(namespace, name)
	if err != nil {
		return nil
	}
	if claim.Status.Allocation != nil {
		return claim
	}
	if pending := l.GetPendingAllocation(claim.UID); pending != nil {
		allocated := *claim
		allocated.Status.Allocation = pending
		return &allocated
	}
	// It may have been written between the two questions.
	if claim, err = l.Get(namespace, name); err != nil {
		return nil
	}
	return claim
}

// roll is the claims as they all were at one moment.
type roll map[string]*resourceapi.ResourceClaim

func (r roll) claim(namespace, name string) *resourceapi.ResourceClaim { return r[namespace+"/"+name] }

func callRoll(tracker fwk.ResourceClaimTracker) (roll, error) {
	list, err := tracker.List()
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	r := make(roll, len(list))
	for _, claim := range list {
		if claim.Status.Allocation == nil {
			claim = live{tracker}.claim(claim.Namespace, claim.Name)
		}
		if claim != nil {
			r[claim.Namespace+"/"+claim.Name] = claim
		}
	}
	return r, nil
}

// anew is the attempt with claims as they are now. They are released while a pod is
// tried, and Kubernetes' state of allocations follows its claims a moment later: whoever
// is to give way must not be chosen by what was allocated at one time, and what pods had
// at another. So both are told from one roll.
func (p *Plugin) anew(ctx context.Context, a *attempt) (*attempt, roll, error) {
	special := a.ledger.inFlight()
	claims, err := callRoll(p.view.ResourceClaims())
	if err != nil {
		return nil, nil, err
	}
	b := &attempt{
		pod: a.pod, policies: a.policies, wish: a.wish, matcher: a.matcher, ledger: a.ledger, inventory: a.inventory, rooms: a.rooms,
		claims: claims, stock: a.stock, allocated: newState(), trusted: a.trusted, renewed: true, findings: newFindings(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation != nil {
			b.book(claim.Status.Allocation.Devices.Results)
		}
	}
	b.book(special)
	b.rooms.keep(ctx, b)
	return b, claims, nil
}

func (a *attempt) book(results []resourceapi.DeviceRequestAllocationResult) {
	for i := range results {
		r := &results[i]
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if (r.AdminAccess == nil || !*r.AdminAccess) && !a.booked(id, r) {
			book(a.allocated, id, r)
		}
	}
}

func (a *attempt) booked(id structured.DeviceID, r *resourceapi.DeviceRequestAllocationResult) bool {
	if r.ShareID == nil {
		return a.allocated.AllocatedDevices.Has(id)
	}
	return a.allocated.AllocatedSharedDeviceIDs.Has(structured.MakeSharedDeviceID(id, r.ShareID))
}

// inFlight is what is allocated and not written yet. Some of it is of claims that are not
// made before it is.
func (l *ledger) inFlight() (results []resourceapi.DeviceRequestAllocationResult) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	for _, e := range l.claims {
		for i := range e.pending {
			results = append(results, *e.pending[i].result)
		}
	}
	return results
}

// has tells whether what is allocated has it, too.
func (a *attempt) has(h *holding) bool {
	return a.incremental || a.booked(h.id, h.result) // the former is of the moment
}

// belonging is one allocated claim of a pod, and what it has.
type belonging struct {
	claim *resourceapi.ResourceClaim
	has   []holding
}

func newBelonging(claim *resourceapi.ResourceClaim) *belonging {
	return &belonging{claim: claim, has: holdings(claim)}
}

// belongings are the allocated claims of a pod. Not its own says that some other
// pod uses one of them, too: that this one goes does not release it.
func belongings(pod *v1.Pod, known claimsKnown) (of []*belonging, own bool) {
	own = true
	for _, name := range claimNames(pod) {
		claim := known.claim(pod.Namespace, name)
		if claim == nil || claim.Status.Allocation == nil {
			continue
		}
		for _, consumer := range claim.Status.ReservedFor {
			own = own && consumer.UID == pod.UID
		}
		of = append(of, newBelonging(claim))
	}
	return of, own
}

func claimNames(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
			names = append(names, *name)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	return names
}
