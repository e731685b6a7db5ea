// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// handle is what the wrapped plug-in is given for its framework: the same one,
// with a view of claims and slices that an attempt can arrange.
type handle struct {
	fwk.Handle
	view *view
}

func (h *handle) SharedDRAManager() fwk.SharedDRAManager { return h.view }

// view stands between the wrapped plug-in and the scheduler's own state. While an
// attempt is shown, the state of allocations is gathered at most once for it, and
// the slices are those that it arranges. Otherwise nothing is changed.
type view struct {
	fwk.SharedDRAManager
	// ledger is told of allocations that are made and not yet written.
	ledger *ledger

	// showing is held by the one attempt that is shown.
	showing sync.Mutex
	mutex   sync.Mutex
	shown   *shown
}

// shown is the attempt in view, with how it arranges slices.
type shown struct {
	*attempt
	arranged func([]*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice
}

// show runs call with the attempt in view. Scheduling cycles follow each other,
// so nobody waits here in practice.
func (v *view) show(ctx context.Context, a *attempt, call func()) {
	v.showing.Lock()
	defer v.showing.Unlock()
	v.set(&shown{attempt: a, arranged: func(list []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
		return a.arrange(ctx, list)
	}})
	defer v.set(nil)
	call()
}

func (v *view) set(s *shown) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.shown = s
}

func (v *view) current() *shown {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.shown
}

func (v *view) ResourceClaims() fwk.ResourceClaimTracker {
	tracker := &following{ResourceClaimTracker: v.SharedDRAManager.ResourceClaims(), ledger: v.ledger}
	return &claimView{ResourceClaimTracker: tracker, view: v}
}

func (v *view) ResourceSlices() fwk.ResourceSliceLister {
	return &sliceView{ResourceSliceLister: v.SharedDRAManager.ResourceSlices(), view: v}
}

type claimView struct {
	fwk.ResourceClaimTracker
	view *view
}

// GatherAllocatedState copies the allocations of the whole cluster, which takes
// milliseconds where there are many: an attempt that cannot do without keeps what it
// got the first time. Until it ends nobody else allocates, and what is released
// meanwhile is found by the next one.
func (c *claimView) GatherAllocatedState() (*structured.AllocatedState, error) {
	a := c.view.current()
	if a != nil && a.allocated != nil {
		return a.state(), nil
	}
	state, err := c.ResourceClaimTracker.GatherAllocatedState()
	if a != nil && err == nil {
		a.allocated = state
	}
	return state, err
}

type sliceView struct {
	fwk.ResourceSliceLister
	view *view
}

func (s *sliceView) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) {
	list, err := s.ResourceSliceLister.ListWithDeviceTaintRules()
	if a := s.view.current(); a != nil && err == nil {
		return a.arranged(list), nil
	}
	return list, err
}
