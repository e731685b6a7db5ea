// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreFilterExtensions is asked to try the pod with others gone or come.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod is told that a pod is to be thought of as being on the node.
func (p *Plugin) AddPod(_ context.Context, _ fwk.CycleState, _ *v1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	return nil
}

// RemovePod is told that a pod is to be thought of as gone from the node.
func (p *Plugin) RemovePod(_ context.Context, _ fwk.CycleState, _ *v1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	return nil
}

// preempt makes others give way to the pod, where that makes room.
//
//nolint:unparam // nobody gives way yet
func (p *Plugin) preempt(context.Context, fwk.CycleState, *attempt, fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
