// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// awaited is room that is about to be free, since claims outlive their pods by a
// moment, or that became free a moment ago: evicting somebody else for it would be too
// much. It is told from the claims and pods that there are, so it does not matter who
// had the pods end, or which scheduler ran then.
func (p *Plugin) awaited(ctx context.Context, state fwk.CycleState, was, a *attempt, known roll, nodes fwk.NodeToStatusReader) *room {
	leaving := p.leaving(known)
	names := slices.Sorted(maps.Keys(a.stock.hosts))
	if own := p.shared.rooms.nodeFor(a.pod); a.stock.hosts[own] != nil {
		names = slices.Insert(names, 0, own)
	}
	for _, name := range names {
		status := nodes.Get(name)
		if status.Code() != fwk.Unschedulable || status.Plugin() != Name {
			continue
		}
		if to := p.after(ctx, state, was, a, a.stock.hosts[name], leaving); to != nil {
			klog.FromContext(ctx).V(2).Info("Pod waits until claims of pods that end are released", "pod", klog.KObj(a.pod), "node", name)
			return to
		}
	}
	return nil
}

// after is what the pod would have of the node if those had left that leave; nil if it
// is not enough, or nobody leaves.
func (p *Plugin) after(ctx context.Context, state fwk.CycleState, was, a *attempt, h *host, leaving map[structured.DeviceID][]*belonging) *room {
	b, ok := a.Clone().(*attempt)
	if !ok {
		return nil
	}
	for i := range h.cards {
		for _, of := range leaving[h.cards[i].id] {
			b.without(of)
		}
	}
	node := p.shared.rooms.node(h.name)
	if node == nil || !b.supposes() && !was.lessFree(a, h) {
		return nil
	}
	status, sure := b.modelled(ctx, h.name)
	if !sure {
		status = p.rehearse(ctx, state.Clone(), b, node)
	}
	if !status.IsSuccess() {
		return nil
	}
	return &room{node: h.name, uses: b.uses(ctx, h)}
}

// lessFree tells whether less of some card was free than is free now, as far as that is
// known: what an incremental attempt finds is of the moment.
func (a *attempt) lessFree(now *attempt, h *host) bool {
	return a.incremental || !slices.Equal(a.node(h).Cards, now.node(h).Cards)
}

// couldEvict tells whether there is anybody who might have to give way to the pod.
func (p *Plugin) couldEvict(pod *v1.Pod) bool {
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
		return false
	}
	all, err := p.framework.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(node fwk.NodeInfo) bool {
		return slices.ContainsFunc(node.GetPods(), func(other fwk.PodInfo) bool {
			return corev1.PodPriority(other.GetPod()) < corev1.PodPriority(pod)
		})
	})
}

// leaving are the claims that nobody uses any more, or only pods that end, by card.
func (p *Plugin) leaving(known roll) map[structured.DeviceID][]*belonging {
	d := deserters{pods: p.framework.SharedInformerFactory().Core().V1().Pods().Lister(), told: p.shared.rooms.evictions.victims(), now: time.Now()}
	by := map[structured.DeviceID][]*belonging{}
	for _, claim := range known {
		if claim.Status.Allocation == nil || !d.deserted(claim) {
			continue
		}
		b := newBelonging(claim)
		for i := range b.has {
			by[b.has[i].id] = append(by[b.has[i].id], b)
		}
	}
	return by
}

// deserters are pods that end.
type deserters struct {
	pods corelisters.PodLister
	// told are those that were told to, whether it is seen yet or not.
	told sets.Set[types.UID]
	now  time.Time
}

// deserted tells whether a claim is going to be released. One that is reserved for
// nobody is not: the controller of claims has done with it.
func (d *deserters) deserted(claim *resourceapi.ResourceClaim) bool {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			return false
		}
		pod, err := d.pods.Pods(claim.Namespace).Get(consumer.Name)
		if err == nil && pod.UID == consumer.UID && !d.told.Has(pod.UID) && !ends(pod, d.now) {
			return false
		}
	}
	return len(claim.Status.ReservedFor) > 0
}

// overdue is how long after its time a pod is still expected to end. Where a node is
// lost, pods end for ever.
const overdue = time.Minute

func ends(pod *v1.Pod, now time.Time) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed ||
		pod.DeletionTimestamp != nil && now.Before(pod.DeletionTimestamp.Add(overdue))
}
