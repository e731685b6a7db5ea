// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	plfeature "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tranche-dra/tranche/pkg/placement"
)

// preparePreemption makes what finds nodes and evicts pods: Kubernetes' own
// preemption, asked for pods with shares only, and with victims chosen by the
// cards that they are on.
func (p *Plugin) preparePreemption(ctx context.Context, features plfeature.Features) error {
	// As Kubernetes has it by default.
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}
	preemption, err := defaultpreemption.New(ctx, args, p.framework, features)
	if err != nil {
		return fmt.Errorf("prepare preemption: %w", err)
	}
	preemption.Evaluator.PluginName = Name
	preemption.Evaluator.Interface = &chooser{DefaultPreemption: preemption, plugin: p}
	p.preemption = preemption
	p.reprieveByRank()
	return nil
}

// chooser chooses victims.
type chooser struct {
	*defaultpreemption.DefaultPreemption
	plugin *Plugin
}

// preempts tells whether others may be made to give way here. For pods without
// shares, and for groups of pods, Kubernetes' own preemption does it.
func (p *Plugin) preempts(state fwk.CycleState, a *attempt) bool {
	return a.knows() && state.GetPodGroupSchedulingCycle() == nil
}

// preempt makes others give way to the pod, where that makes room and none is about to
// be free anyway. Rejected is final: Kubernetes' own preemption, which comes next,
// would do it once more. Why nobody gives way is not said: it is no more than that
// there is no room.
func (p *Plugin) preempt(ctx context.Context, state fwk.CycleState, a *attempt, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if to := p.awaited(ctx, a, nodes); to != nil {
		p.shared.rooms.give(a.pod.UID, to)
		return framework.NewPostFilterResultWithNominatedNode(to.node),
			fwk.NewStatus(fwk.Success, "waits until claims of pods that end are released on node "+to.node)
	}
	a.plans = &plans{by: map[string]*room{}}
	result, status := p.preemption.Evaluator.Preempt(ctx, state, a.pod, nodes)
	switch {
	case status.IsRejected():
		return result, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	case status.IsSuccess() && result != nil && result.NominatingInfo != nil:
		p.shared.rooms.give(a.pod.UID, a.plans.of(result.NominatedNodeName))
		status = fwk.NewStatus(fwk.Success, "less urgent pods give way on node "+result.NominatedNodeName)
	}
	return result, status
}

// plans are what the pod would get, and from whom, by node.
type plans struct {
	mutex sync.Mutex
	by    map[string]*room
}

func (s *plans) add(to *room) {
	if s == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.by[to.node] = to
}

// of is the plan for a node, which where there is none has just its name.
func (s *plans) of(node string) *room {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if to := s.by[node]; to != nil {
		return to
	}
	return &room{node: node}
}

// PreEnqueue holds a pod back while its victims are told.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	if status := p.DynamicResources.PreEnqueue(ctx, pod); !status.IsSuccess() {
		return status
	}
	status := p.preemption.PreEnqueue(ctx, pod)
	if !status.IsSuccess() {
		p.heldBack.add(pod.UID)
	}
	return status
}

// EventsToRegister has one event more than those of claims: see afterDeletion.
func (p *Plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	events, err := p.DynamicResources.EventsToRegister(ctx)
	for i := range events {
		if events[i].Event.Resource == fwk.ResourceClaim && events[i].QueueingHintFn != nil {
			events[i].QueueingHintFn = p.shared.ledger.heed(events[i].QueueingHintFn)
		}
	}
	return append(events, fwk.ClusterEventWithHint{Event: victimDeleted, QueueingHintFn: p.afterDeletion}), err
}

// afterDeletion lets a pod have another try that was held back: its victim may be
// seen to end after its claim was seen to be released. Otherwise what counts is the
// claim.
func (p *Plugin) afterDeletion(_ klog.Logger, pod *v1.Pod, _, _ any) (fwk.QueueingHint, error) {
	if p.heldBack.remove(pod.UID) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// OrderedScoreFuncs prefers, among nodes, the one whose victims are the better
// choice by the rules for the victims of one node.
func (c *chooser) OrderedScoreFuncs(_ context.Context, by map[string]*extenderv1.Victims) []func(string) int64 {
	var holders []placement.Holder
	victims := make(map[string][]int, len(by))
	nodes := make([]string, 0, len(by))
	for node, of := range by {
		nodes = append(nodes, node)
		for _, pod := range of.Pods {
			victims[node] = append(victims[node], len(holders))
			holders = append(holders, c.plugin.holder(pod))
		}
		slices.SortStableFunc(victims[node], func(i, j int) int { return placement.Rank(&holders[j], &holders[i]) })
	}
	compare := func(a, b string) int { return placement.CompareVictims(holders, victims[a], victims[b]) }
	slices.SortFunc(nodes, compare)
	place := make(map[string]int64, len(nodes))
	for i, node := range nodes {
		if place[node] = int64(i); i > 0 && compare(nodes[i-1], node) == 0 {
			place[node] = place[nodes[i-1]]
		}
	}
	return []func(string) int64{
		func(node string) int64 { return -by[node].NumPDBViolations },
		func(node string) int64 { return -place[node] },
		func(node string) int64 { return util.GetEarliestPodStartTime(by[node]).UnixNano() }, // the youngest
	}
}
