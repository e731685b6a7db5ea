// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes_1_36

package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

var (
	victimDeleted = fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}
	podUpdated    = fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}
)

func (p *Plugin) reprieveByRank() {
	p.preemption.MoreImportantVictim = func(x, y preemption.Victim) bool {
		if len(x.Pods()) == 1 && len(y.Pods()) == 1 {
			return p.outranks(x.Pods()[0].GetPod(), y.Pods()[0].GetPod())
		}
		return preemption.MoreImportantVictim(x, y)
	}
	p.preemption.IsEligiblePod = func(_ fwk.NodeInfo, victim preemption.Victim, preemptor *v1.Pod) bool {
		for _, pod := range victim.Pods() {
			if !p.eligible(pod.GetPod(), preemptor) {
				return false
			}
		}
		return true
	}
}

func (p *Plugin) followEvictions() {
	tell := p.preemption.Executor.PreemptPod
	p.preemption.Executor.PreemptPod = func(ctx context.Context, c preemption.Candidate, preemptor preemption.ExecutorPreemptor, victim *v1.Pod, name string) (bool, error) {
		inMemory, err := tell(ctx, c, preemptor, victim, name)
		p.told(preemptor.UID(), c.Victims().Pods, err)
		return inMemory, err
	}
}

// SelectVictimsOnNode is asked of each node whose lack of room may be mended.
func (c *chooser) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, preemptor *v1.Pod, node fwk.NodeInfo, all []*preemption.DomainVictim, pdbs []*policy.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	var alone []fwk.PodInfo
	for _, victim := range all {
		if pods := victim.Pods(); len(pods) == 1 { // groups go as one, and not by their cards
			alone = append(alone, pods[0])
		}
	}
	return c.choose(ctx, state, node, alone, pdbs, func() ([]*v1.Pod, int, *fwk.Status) {
		return c.DefaultPreemption.SelectVictimsOnNode(ctx, state, preemptor, node, all, pdbs)
	})
}
