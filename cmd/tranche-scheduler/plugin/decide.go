// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/placement"
)

// Filter asks the model first, and the allocator where the model cannot tell. The
// allocator takes some tenths of a millisecond for a node, the model a few
// microseconds.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	a, err := attemptOf(state)
	if err != nil || !a.allocates() {
		return preemptible(p.DynamicResources.Filter(ctx, state, pod, node))
	}
	status, sure := a.modelled(ctx, node.Node().Name)
	switch {
	case sure:
		return status
	case a.supposes(), a.renewed:
		return preemptible(p.rehearse(ctx, state, a, node))
	case a.incremental:
		return preemptible(p.rehearse(ctx, state.Clone(), a, node))
	}
	return preemptible(p.DynamicResources.Filter(ctx, state, pod, node))
}

// modelled is what the model says of a node, not sure where the allocator has to be
// asked.
func (a *attempt) modelled(ctx context.Context, name string) (status *fwk.Status, sure bool) {
	if !a.knows() {
		return nil, false
	}
	switch f := a.find(ctx, name); {
	case f.certain && !f.fits:
		return f.status(), true
	default:
		return nil, f.certain && a.trusted
	}
}

// PostFilter is called when no node will do. Claims that stand in their own way are
// released first, as the wrapped plug-in does; then others may have to give way; and
// where neither helps it is said what is missing in the cluster.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	a, err := attemptOf(state)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable) // PreFilter said why
	}
	result, status := p.DynamicResources.PostFilter(ctx, state, pod, nodes)
	if !status.IsRejected() || hasReleased(status) {
		return result, status
	}
	said := a.sum()
	if p.preempts(state, a) {
		result, status = p.preempt(ctx, state, a, nodes)
		said = append(said, status.Reasons()...)
	}
	if len(said) > 0 {
		status = fwk.NewStatus(status.Code(), strings.Join(said, "; "))
	}
	return result, status
}

// Score is given by NormalizeScore, which knows all nodes.
func (p *Plugin) Score(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	a, err := attemptOf(state)
	if err != nil || !a.scores() {
		return p.DynamicResources.Score(ctx, state, pod, node)
	}
	a.find(ctx, node.Node().Name)
	return 0, nil
}

// ScoreExtensions is for NormalizeScore.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives each node its score, the best the highest there is.
func (p *Plugin) NormalizeScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	a, err := attemptOf(state)
	if err != nil || !a.scores() {
		return p.DynamicResources.NormalizeScore(ctx, state, pod, scores)
	}
	values := make([]float64, len(scores))
	var worst float64
	for i := range scores {
		f := a.find(ctx, scores[i].Name)
		values[i] = f.score
		worst = min(worst, f.score)
	}
	for i := range scores {
		if !a.find(ctx, scores[i].Name).fits {
			values[i] = worst - 1 // the allocator knows of something there, nobody knows how good it is
		}
	}
	for i, score := range placement.Normalize(values, fwk.MaxScore) {
		scores[i].Score = score
	}
	return nil
}

// scores tells whether nodes are compared by what is free in their cards. Requests
// with alternatives are compared by which of them can be had.
func (a *attempt) scores() bool { return a.knows() && !a.wish.prioritized }

// Reserve allocates on the chosen node where Filter took the model's word for it, or had
// the allocator try it with a state of that node alone.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	a, err := attemptOf(state)
	if err == nil && a.knows() && (a.incremental || a.trusted && a.find(ctx, nodeName).certain) {
		if status := p.allocate(ctx, state, a, nodeName); !status.IsSuccess() {
			// Next time the allocator is asked for every node.
			p.doubts.add(pod.UID)
			return fwk.AsStatus(fmt.Errorf("allocate on node %s, which was found to have room: %w", nodeName, status.AsError()))
		}
	}
	status := p.DynamicResources.Reserve(ctx, state, pod, nodeName)
	if status.IsSuccess() {
		p.shared.rooms.leave(pod.UID, nodeName)
	}
	return status
}

// allocate runs what PreFilter and Filter left out, with the slices of one node
// and what was gathered before.
func (p *Plugin) allocate(ctx context.Context, state fwk.CycleState, a *attempt, nodeName string) *fwk.Status {
	node, err := p.framework.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("look up node: %w", err))
	}
	a.only = nodeName
	if _, status := p.allocator(ctx, state, a, []fwk.NodeInfo{node}); !status.IsSuccess() {
		return status
	}
	return p.DynamicResources.Filter(ctx, state, a.pod, node)
}
