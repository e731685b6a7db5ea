// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

// eligible pods may have to give way: those of lower priority whose claims nobody
// else uses.
func (p *Plugin) eligible(victim, preemptor *v1.Pod) bool {
	if corev1.PodPriority(victim) >= corev1.PodPriority(preemptor) {
		return false
	}
	_, own := belongings(victim, live{p.view.ResourceClaims()})
	return own
}

// holder is a pod that may have to give way, without what it holds.
func (p *Plugin) holder(pod *v1.Pod) placement.Holder {
	of, _ := belongings(pod, live{p.view.ResourceClaims()})
	return holderOf(pod, of)
}

func holderOf(pod *v1.Pod, of []*belonging) placement.Holder {
	h := placement.Holder{
		Ending: pod.DeletionTimestamp != nil, Priority: corev1.PodPriority(pod),
		Since: util.GetPodStartTime(pod).UnixNano(),
	}
	online := false
	for _, b := range of {
		for i := range b.has {
			offline := b.has[i].class == share.Offline
			h.Offline = h.Offline || b.has[i].ours && offline
			online = online || b.has[i].ours && !offline
		}
	}
	h.Offline = h.Offline && !online
	return h
}

// table is everybody who may have to give way on one node.
type table struct {
	pods       []fwk.PodInfo
	holders    []placement.Holder
	belongings [][]*belonging
	budgets    []int32
}

func (a *attempt) tableOf(h *host, pods []fwk.PodInfo, pdbs []*policy.PodDisruptionBudget) *table {
	t := &table{pods: pods}
	selectors := make([]labels.Selector, len(pdbs))
	for i, pdb := range pdbs {
		t.budgets = append(t.budgets, pdb.Status.DisruptionsAllowed)
		if selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector); err == nil && !selector.Empty() {
			selectors[i] = selector
		}
	}
	index := make(map[structured.DeviceID]int, len(h.cards))
	for i := range h.cards {
		index[h.cards[i].id] = i
	}
	for _, info := range pods {
		pod := info.GetPod()
		of, _ := belongings(pod, a.claims)
		holder := holderOf(pod, of)
		for i, pdb := range pdbs {
			if selectors[i] != nil && covers(pdb, selectors[i], pod) {
				holder.Budgets = append(holder.Budgets, i)
			}
		}
		for _, b := range of {
			for i := range b.has {
				card, here := index[b.has[i].id]
				if !here {
					continue
				}
				amount := b.has[i].taken.amount()
				if b.has[i].taken.alone > 0 {
					amount = h.node.Cards[card].Total
				}
				holder.Held = append(holder.Held, placement.Held{Card: card, Amount: amount, Class: b.has[i].class})
			}
		}
		t.holders, t.belongings = append(t.holders, holder), append(t.belongings, of)
	}
	return t
}

// covers tells whether evicting the pod counts against the budget. What was
// disrupted already is counted in the budget's status.
func covers(pdb *policy.PodDisruptionBudget, selector labels.Selector, pod *v1.Pod) bool {
	if pdb.Namespace != pod.Namespace || len(pod.Labels) == 0 || !selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	_, disrupted := pdb.Status.DisruptedPods[pod.Name]
	return !disrupted
}

// choose chooses victims on a node by what they have of its cards. False says that
// somebody else has to, since cards are not all that is missing there, or not all
// that is asked for.
func (p *Plugin) choose(ctx context.Context, state fwk.CycleState, a *attempt, node fwk.NodeInfo, pods []fwk.PodInfo, pdbs []*policy.PodDisruptionBudget) (victims []*v1.Pod, violations int, ok bool) {
	h := a.stock.hosts[node.Node().Name]
	if h == nil || !a.knows() {
		return nil, 0, false
	}
	demand, f := a.demand(ctx, h)
	empty, isAttempt := a.Clone().(*attempt)
	if f.because != "" || !isAttempt {
		return nil, 0, false
	}
	t := a.tableOf(h, pods, pdbs)
	for _, of := range t.belongings {
		for _, b := range of {
			empty.without(b)
		}
	}
	chosen, fits := placement.Victims(empty.node(h), demand, t.holders, t.budgets)
	if !fits || len(chosen) == 0 {
		return nil, 0, false
	}
	for _, i := range chosen {
		if node.RemovePod(klog.FromContext(ctx), t.pods[i].GetPod()) != nil ||
			!p.framework.RunPreFilterExtensionRemovePod(ctx, state, a.pod, t.pods[i], node).IsSuccess() {
			return nil, 0, false
		}
		victims = append(victims, t.pods[i].GetPod())
	}
	if !p.framework.RunFilterPluginsWithNominatedPods(ctx, state, a.pod, node).IsSuccess() {
		return nil, 0, false
	}
	return victims, breaches(t, chosen), true
}

// breaches counts the victims that go against some budget.
func breaches(t *table, victims []int) int {
	left, sum := slices.Clone(t.budgets), 0
	for _, i := range victims {
		over := false
		for _, b := range t.holders[i].Budgets {
			left[b]--
			over = over || left[b] < 0
		}
		if over {
			sum++
		}
	}
	return sum
}

// plan notes what the pod is going to get on the node from the victims.
func (p *Plugin) plan(ctx context.Context, a *attempt, node string, victims []*v1.Pod) {
	h := a.stock.hosts[node]
	after, ok := a.Clone().(*attempt)
	if h == nil || !ok {
		return
	}
	for _, victim := range victims {
		of, _ := belongings(victim, a.claims)
		for _, b := range of {
			after.without(b)
		}
	}
	a.plans.add(&room{node: node, uses: after.uses(ctx, h), victims: victims})
}

// outranks orders pods for the reprieve that Kubernetes' own preemption grants,
// where victims cannot be told from cards alone.
func (p *Plugin) outranks(x, y *v1.Pod) bool {
	a, b := p.holder(x), p.holder(y)
	if rank := placement.Rank(&a, &b); rank != 0 {
		return rank > 0
	}
	return a.Since < b.Since
}

// choose chooses victims by cards, and otherwise as Kubernetes does. State and node
// are copies.
func (c *chooser) choose(ctx context.Context, state fwk.CycleState, node fwk.NodeInfo, pods []fwk.PodInfo, pdbs []*policy.PodDisruptionBudget, otherwise func() ([]*v1.Pod, int, *fwk.Status)) ([]*v1.Pod, int, *fwk.Status) {
	a, err := attemptOf(state)
	if err != nil {
		return nil, 0, fwk.AsStatus(err)
	}
	eligible := slices.DeleteFunc(slices.Clone(pods), func(info fwk.PodInfo) bool { return !c.plugin.eligible(info.GetPod(), a.pod) })
	victims, violations, ok := c.plugin.choose(ctx, state.Clone(), a, node.Snapshot(), eligible, pdbs)
	if !ok {
		var status *fwk.Status
		if victims, violations, status = otherwise(); !status.IsSuccess() {
			return nil, 0, status
		}
	}
	// After the reprieve the attempt of this state thinks of its victims as gone.
	c.plugin.plan(ctx, a, node.Node().Name, victims)
	return victims, violations, nil
}
