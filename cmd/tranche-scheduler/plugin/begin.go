// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
)

// PreFilter begins the pod's attempt.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if len(pod.Spec.ResourceClaims) == 0 && !usesExtended(pod, p.view.DeviceClassResolver()) {
		return p.DynamicResources.PreFilter(ctx, state, pod, nodes)
	}
	policies, err := v1alpha1.PlacementOfAnnotations(pod.Annotations, p.policies)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	policies.Workload = p.shared.ledger.expected()
	a := &attempt{
		pod: pod, policies: policies, wish: wishOf(pod, p.view),
		matcher: p.shared.matcher, ledger: p.shared.ledger, inventory: p.shared.inventory, rooms: p.shared.rooms,
		claims: live{p.view.ResourceClaims()}, findings: newFindings(),
	}
	// Pods of a group share allocations that are not made yet, which only the
	// wrapped plug-in knows of.
	a.trusted = a.wish.complete && state.GetPodGroupSchedulingCycle() == nil && !p.doubts.has(pod.UID)
	if a.trusted && len(a.wish.parts) > 0 && a.ledger.current() {
		a.allocated, a.incremental = newState(), true
	}
	result, status := p.allocator(ctx, state, a, nodes)
	if status.IsSuccess() {
		state.Write(stateKey, a)
	}
	return result, status
}

// allocator has the wrapped plug-in make an allocator for the attempt. It gathers
// what is allocated first, and asks for the slices then.
func (p *Plugin) allocator(ctx context.Context, state fwk.CycleState, a *attempt, nodes []fwk.NodeInfo) (result *fwk.PreFilterResult, status *fwk.Status) {
	p.view.show(ctx, a, func() {
		result, status = p.DynamicResources.PreFilter(ctx, state, a.pod, nodes)
	})
	return result, status
}
