// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// supposed is a set of allocated claims that are to be thought of as released.
type supposed struct {
	gone map[types.UID]*belonging
	// freed is what they leave of each device.
	freed map[structured.DeviceID]tally
}

func (s *supposed) supposes() bool { return len(s.gone) > 0 }

func (s *supposed) clone() supposed {
	return supposed{gone: maps.Clone(s.gone), freed: maps.Clone(s.freed)}
}

// without thinks of a claim as released.
func (a *attempt) without(b *belonging) {
	if a.gone == nil {
		a.gone, a.freed = make(map[types.UID]*belonging), make(map[structured.DeviceID]tally)
	}
	if a.gone[b.claim.UID] == nil {
		a.gone[b.claim.UID] = b
		a.shift(b, 1)
	}
}

// again takes back without.
func (a *attempt) again(b *belonging) {
	if was := a.gone[b.claim.UID]; was != nil {
		delete(a.gone, b.claim.UID)
		a.shift(was, -1)
	}
}

func (a *attempt) shift(b *belonging, by int32) {
	for i := range b.has {
		if !a.has(&b.has[i]) {
			continue
		}
		f := a.freed[b.has[i].id]
		f.add(b.has[i].taken, by)
		a.freed[b.has[i].id] = f
	}
	a.findings = newFindings()
}

// PreFilterExtensions is asked to try the pod with others gone or come.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod is told that a pod is to be thought of as being on the node: one that was
// thought of as gone before, or one that is nominated, whose room is kept anyway.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if a, err := attemptOf(state); err == nil && a.supposes() {
		of, _ := belongings(added.GetPod(), a.claims)
		for _, b := range of {
			a.again(b)
		}
	}
	return nil
}

// RemovePod is told that a pod is to be thought of as gone from the node. A claim
// that others use, too, stays.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if a, err := attemptOf(state); err == nil && a.allocates() {
		if of, own := belongings(removed.GetPod(), a.claims); own {
			for _, b := range of {
				a.without(b)
			}
		}
	}
	return nil
}

// rehearse has the allocator try a node as it is supposed to be. The state is one
// that was cloned to try it.
func (p *Plugin) rehearse(ctx context.Context, state fwk.CycleState, a *attempt, node fwk.NodeInfo) *fwk.Status {
	b, ok := a.Clone().(*attempt)
	if !ok {
		return fwk.AsStatus(errNoAttempt)
	}
	b.only, b.findings = node.Node().Name, newFindings()
	b.allocated, b.supposed, b.incremental = b.remaining(), supposed{}, false
	if _, status := p.allocator(ctx, state, b, []fwk.NodeInfo{node}); !status.IsSuccess() {
		if status.IsRejected() {
			return status
		}
		return fwk.AsStatus(fmt.Errorf("try node %s with others gone: %w", node.Node().Name, status.AsError()))
	}
	return p.DynamicResources.Filter(ctx, state, a.pod, node)
}

// state is what the allocator is told that is allocated, nil where it is not known yet.
// To an incremental attempt it matters only once there is but one node to allocate on.
func (a *attempt) state() *structured.AllocatedState {
	if !a.incremental || a.only == "" {
		return a.allocated
	}
	state := cloneState(a.allocated)
	a.ledger.book(state, a.stock.shared)
	if h := a.stock.hosts[a.only]; h != nil {
		a.ledger.book(state, h.slices)
	}
	return state
}

func cloneState(s *structured.AllocatedState) *structured.AllocatedState {
	return &structured.AllocatedState{
		AllocatedDevices: s.AllocatedDevices.Clone(), AllocatedSharedDeviceIDs: s.AllocatedSharedDeviceIDs.Clone(),
		AggregatedCapacity: s.AggregatedCapacity.Clone(),
	}
}

// remaining is what is allocated without what is supposed to be gone.
func (a *attempt) remaining() *structured.AllocatedState {
	left := cloneState(a.state())
	for _, b := range a.gone {
		for i := range b.has {
			id, r := b.has[i].id, b.has[i].result
			switch {
			case !a.has(&b.has[i]):
			case r.ShareID != nil:
				left.AllocatedSharedDeviceIDs.Delete(structured.MakeSharedDeviceID(id, r.ShareID))
				left.AggregatedCapacity.Remove(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
			case !a.kept.Has(id):
				left.AllocatedDevices.Delete(id)
			}
		}
	}
	return left
}
