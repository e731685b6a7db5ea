// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes_1_36

package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

var (
	victimDeleted = fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}
	podUpdated    = fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}
)

func (p *Plugin) reprieveByRank() {
	p.preemption.MoreImportantPod = p.outranks
	p.preemption.IsEligiblePod = func(_ fwk.NodeInfo, victim fwk.PodInfo, preemptor *v1.Pod) bool {
		return p.eligible(victim.GetPod(), preemptor)
	}
}

func (p *Plugin) followEvictions() {
	tell := p.preemption.Executor.PreemptPod
	p.preemption.Executor.PreemptPod = func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor, victim *v1.Pod, name string) error {
		err := tell(ctx, c, preemptor, victim, name)
		p.told(preemptor.UID(), c.Victims().Pods, err)
		return err
	}
}

// SelectVictimsOnNode is asked of each node whose lack of room may be mended.
func (c *chooser) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, preemptor *v1.Pod, node fwk.NodeInfo, pdbs []*policy.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	return c.choose(ctx, state, node, node.GetPods(), pdbs, func() ([]*v1.Pod, int, *fwk.Status) {
		return c.DefaultPreemption.SelectVictimsOnNode(ctx, state, preemptor, node, pdbs)
	})
}
