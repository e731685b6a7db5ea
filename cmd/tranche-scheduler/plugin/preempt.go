// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	plfeature "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/placement"
)

// preparePreemption makes what finds nodes and evicts pods: Kubernetes' own
// preemption, asked for pods with claims only, and with victims chosen by the
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
	p.followEvictions()
	return nil
}

// chooser chooses victims.
type chooser struct {
	*defaultpreemption.DefaultPreemption
	plugin *Plugin
}

// preempts tells whether others may be made to give way here. For pods that ask for no
// devices, and for groups of pods, Kubernetes' own preemption does it.
func (p *Plugin) preempts(state fwk.CycleState, a *attempt) bool {
	return a.allocates() && state.GetPodGroupSchedulingCycle() == nil
}

// preempt makes others give way to the pod, where that makes room and none is about to
// be free anyway. Rejected is final: Kubernetes' own preemption, which comes next,
// would do it once more. Why nobody gives way is not said: it is no more than that
// there is no room.
func (p *Plugin) preempt(ctx context.Context, state fwk.CycleState, was *attempt, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	rooms := p.shared.rooms
	if node := rooms.evictions.unseen(was.pod.UID); node != "" {
		return nominated(node, "waits until pods end on node "+node)
	}
	if rooms.nodeFor(was.pod) == "" && !p.couldEvict(was.pod) {
		// For such a pod no room is kept either.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	a, known, err := p.anew(ctx, was)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if to := p.awaited(ctx, state, was, a, known, nodes); to != nil {
		rooms.give(a.pod.UID, to)
		return nominated(to.node, "waits until claims of pods that end are released on node "+to.node)
	}
	a.plans = &plans{by: map[string]*room{}}
	state.Write(stateKey, a)
	rooms.evictions.begin(a.pod)
	result, status := p.preemption.Evaluator.Preempt(ctx, state, a.pod, nodes)
	if status.IsSuccess() && result != nil && result.NominatingInfo != nil {
		to := a.plans.of(result.NominatedNodeName)
		rooms.evictions.chosen(a.pod.UID, to.node, to.victims)
		rooms.give(a.pod.UID, to)
		return nominated(to.node, "less urgent pods give way on node "+to.node)
	}
	rooms.evictions.forget(a.pod.UID)
	if status.IsRejected() {
		status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	return result, status
}

func nominated(node, because string) (*fwk.PostFilterResult, *fwk.Status) {
	return framework.NewPostFilterResultWithNominatedNode(node), fwk.NewStatus(fwk.Success, because)
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

// told is called when a victim of a pod was told to end, or could not be.
func (p *Plugin) told(uid types.UID, victims []*v1.Pod, err error) {
	p.shared.rooms.evictions.tell(uid, victims, err)
	if err != nil {
		p.shared.rooms.wake() // others may wait for the same victims
	}
}

// PreEnqueue holds a pod back while its victims are told.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	if status := p.DynamicResources.PreEnqueue(ctx, pod); !status.IsSuccess() {
		return status
	}
	if p.shared.rooms.evictions.hold(pod.UID) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits until the pods that give way to it are told")
	}
	return nil
}

// EventsToRegister has two events more than those of claims: see afterDeletion and
// afterUpdate.
func (p *Plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	events, err := p.DynamicResources.EventsToRegister(ctx)
	return append(events,
		fwk.ClusterEventWithHint{Event: victimDeleted, QueueingHintFn: p.afterDeletion},
		fwk.ClusterEventWithHint{Event: podUpdated, QueueingHintFn: afterUpdate},
	), err
}

// afterDeletion lets a pod have another try when a victim of it is gone, which may be
// seen after its claim was seen to be released. Otherwise what counts is the claim.
func (p *Plugin) afterDeletion(_ klog.Logger, pod *v1.Pod, gone, _ any) (fwk.QueueingHint, error) {
	if victim, ok := gone.(*v1.Pod); ok && !p.shared.rooms.evictions.gives(pod.UID, victim.UID) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// afterUpdate lets a pod have another try when its annotations say another policy.
func afterUpdate(_ klog.Logger, pod *v1.Pod, was, is any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*v1.Pod](was, is)
	if err != nil {
		return fwk.Queue, fmt.Errorf("look at update of pod: %w", err)
	}
	if before == nil || after == nil || after.UID != pod.UID {
		return fwk.QueueSkip, nil
	}
	for _, name := range []string{v1alpha1.AnnotationNodePolicy, v1alpha1.AnnotationCardPolicy} {
		if before.Annotations[name] != after.Annotations[name] {
			return fwk.Queue, nil
		}
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
