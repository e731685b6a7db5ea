// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/placement"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

// rooms is what is kept on cards for nominated pods: those for whom others gave
// way, and who wait until these have ended and their claims are released. It is
// booked as if it were allocated, once for each claim, for every pod of no higher
// priority that does not wait for the same claim, so that neither the model nor the
// allocator gives it away.
type rooms struct {
	framework fwk.Handle
	logger    klog.Logger
	evictions *evictions

	mutex sync.Mutex
	// nodes of nominated pods, by what the API server says or the plug-in decided, and
	// what is kept for them there where it is known.
	nodes map[types.UID]string
	by    map[types.UID]*room
	// waiting are pods that were tried while room was kept, so that they are tried again
	// at once when some of it no longer is.
	waiting map[string]*v1.Pod
}

// room is what is kept for one pod.
type room struct {
	node string
	uses []use
	// victims whose room it was.
	victims []*v1.Pod
}

// use is one card of a room.
type use struct {
	id structured.DeviceID
	// claim that it is for, where that is known: several pods may wait for the same.
	claim types.UID
	// consumed of a card that is shared, nil for all of one that is not.
	consumed map[resourceapi.QualifiedName]resource.Quantity
}

func newRooms(ctx context.Context, framework fwk.Handle) *rooms {
	return &rooms{framework: framework, logger: klog.FromContext(ctx), evictions: newEvictions(ctx, framework), nodes: map[types.UID]string{}, by: map[types.UID]*room{}, waiting: map[string]*v1.Pod{}}
}

// handlers for an informer of pods. What is known of nominated pods survives a
// restart of the scheduler in their status.
func (r *rooms) handlers() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.observe(nil, obj) },
		UpdateFunc: func(was, obj any) { r.observe(was, obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				r.end(pod)
			}
		},
	}
}

func (r *rooms) observe(was, obj any) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	if pod.Spec.NodeName != "" {
		r.end(pod)
		return
	}
	node := pod.Status.NominatedNodeName
	if len(pod.Spec.ResourceClaims) == 0 && !r.has(pod.UID) {
		return
	}
	// A pod without a nomination may be older news than the decision to nominate it.
	if before, ok := was.(*v1.Pod); node == "" && (!ok || before.Status.NominatedNodeName == "") {
		return
	}
	r.give(pod.UID, &room{node: node})
}

func (r *rooms) has(uid types.UID) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.nodes[uid] != ""
}

// give notes what a pod is going to have. Where that is nothing, or on another node
// than before, others are tried again.
func (r *rooms) give(uid types.UID, to *room) {
	r.mutex.Lock()
	was := r.nodes[uid]
	switch {
	case to.node == "":
		r.forget(uid)
	default:
		r.nodes[uid] = to.node
		if to.uses != nil {
			r.by[uid] = to
		}
	}
	r.mutex.Unlock()
	if was != "" && was != to.node {
		r.wake()
	}
}

// forget is called with the mutex held.
func (r *rooms) forget(uid types.UID) {
	delete(r.nodes, uid)
	delete(r.by, uid)
	r.evictions.forget(uid)
}

// end is called when a pod has its node, or is gone.
func (r *rooms) end(pod *v1.Pod) {
	r.mutex.Lock()
	was := r.nodes[pod.UID]
	r.forget(pod.UID)
	delete(r.waiting, nameOf(pod))
	r.mutex.Unlock()
	if was != "" && was != pod.Spec.NodeName {
		r.wake()
	}
}

// leave is called when a pod is given its claims: what was kept for it on another node
// is free from then on.
func (r *rooms) leave(uid types.UID, node string) {
	r.mutex.Lock()
	elsewhere := r.nodes[uid] != "" && r.nodes[uid] != node
	if elsewhere {
		r.forget(uid)
	}
	r.mutex.Unlock()
	if elsewhere {
		r.wake()
	}
}

// tried remembers a pod that is tried while room is kept for others, and tells whether
// any is.
func (r *rooms) tried(pod *v1.Pod) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	_, own := r.nodes[pod.UID]
	others := len(r.nodes) > 1 || len(r.nodes) == 1 && !own
	if others && len(r.waiting) < maxRemembered {
		r.waiting[nameOf(pod)] = pod
	}
	return others
}

// wake has the pods tried again that were tried while room was kept, and wait.
func (r *rooms) wake() {
	r.mutex.Lock()
	waiting := r.waiting
	r.waiting = map[string]*v1.Pod{}
	r.mutex.Unlock()
	if len(waiting) > 0 {
		r.framework.Activate(r.logger, waiting)
	}
}

func nameOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (r *rooms) of(uid types.UID, node string) *room {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known := r.by[uid]; known != nil && known.node == node {
		return known
	}
	return nil
}

// nodeFor is the node that the pod is nominated for, empty where there is none.
func (r *rooms) nodeFor(pod *v1.Pod) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return cmp.Or(r.nodes[pod.UID], pod.Status.NominatedNodeName)
}

// nominated are the pods that wait, by their nodes.
func (r *rooms) nominated() map[string]sets.Set[types.UID] {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	by := map[string]sets.Set[types.UID]{}
	for uid, node := range r.nodes {
		if by[node] == nil {
			by[node] = sets.New[types.UID]()
		}
		by[node].Insert(uid)
	}
	return by
}

// keep books the rooms of others for the attempt, whose copy of what is allocated
// is its own.
func (r *rooms) keep(ctx context.Context, a *attempt) {
	if r == nil || a.allocated == nil {
		return
	}
	// It is remembered before it is refused, so that no room goes unnoticed in between.
	if !r.tried(a.pod) {
		return
	}
	booked := sets.New[types.UID]()
	for node, pods := range r.nominated() {
		for _, info := range r.framework.NominatedPodsForNode(node) {
			pod := info.GetPod()
			if !pods.Has(pod.UID) || pod.UID == a.pod.UID || corev1.PodPriority(pod) < corev1.PodPriority(a.pod) {
				continue
			}
			if !waits(pod, r.framework.SharedDRAManager()) {
				continue // it has its shares and is about to be bound
			}
			known := r.of(pod.UID, node)
			if known == nil {
				known = r.guess(ctx, a, pod, node)
			}
			if known == nil {
				continue
			}
			for _, u := range known.uses {
				if u.claim == "" || !booked.Has(u.claim) && !a.wish.has(u.claim) {
					a.keep(u)
				}
			}
			for _, u := range known.uses {
				booked.Insert(u.claim)
			}
		}
	}
}

// waits tells whether some claim of the pod is not allocated, or not even made.
func waits(pod *v1.Pod, manager fwk.SharedDRAManager) bool {
	tracker := manager.ResourceClaims()
	if pod.Status.ExtendedResourceClaimStatus == nil && usesExtended(pod, manager.DeviceClassResolver()) {
		return true
	}
	return slices.ContainsFunc(claimNames(pod), func(name string) bool {
		claim, err := tracker.Get(pod.Namespace, name)
		return err == nil && claim.Status.Allocation == nil && tracker.GetPendingAllocation(claim.UID) == nil
	})
}

func (a *attempt) keep(u use) {
	a.keeps = true
	if u.consumed != nil {
		a.allocated.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(u.id, u.consumed))
		return
	}
	if a.kept == nil {
		a.kept = sets.New[structured.DeviceID]()
	}
	a.kept.Insert(u.id)
	a.allocated.AllocatedDevices.Insert(u.id)
}

// guess finds a room for a pod of which only its node is known: what it would get
// if those had ended that end anyway, or all who have to make way for it.
func (r *rooms) guess(ctx context.Context, a *attempt, pod *v1.Pod, node string) *room {
	h, info := a.stock.hosts[node], r.node(node)
	if h == nil || info == nil {
		return nil
	}
	manager := r.framework.SharedDRAManager()
	b := &attempt{
		pod: pod, policies: a.policies, wish: wishOf(pod, manager), matcher: a.matcher, ledger: a.ledger, inventory: a.inventory,
		claims: a.claims, stock: a.stock, allocated: a.allocated, incremental: a.incremental, kept: a.kept, findings: newFindings(),
	}
	if !b.knows() {
		return nil
	}
	for _, all := range []bool{false, true} {
		for _, other := range info.GetPods() {
			of, own := belongings(other.GetPod(), a.claims)
			goes := other.GetPod().DeletionTimestamp != nil || all && corev1.PodPriority(other.GetPod()) < corev1.PodPriority(pod)
			for _, belonging := range of {
				if own && goes {
					b.without(belonging)
				}
			}
		}
		if uses := b.uses(ctx, h); uses != nil {
			return &room{node: node, uses: uses}
		}
	}
	return nil
}

func (r *rooms) node(name string) fwk.NodeInfo {
	info, err := r.framework.SnapshotSharedLister().NodeInfos().Get(name)
	if err != nil {
		return nil
	}
	return info
}

// uses is what the pod would take of the node's cards, nil where it does not fit.
func (a *attempt) uses(ctx context.Context, h *host) []use {
	if a.wish.partial {
		return a.left(h)
	}
	demand, f := a.demand(ctx, h)
	choice, ok := a.policies.Choose(a.node(h), demand)
	if !ok {
		return nil
	}
	uses := make([]use, 0, len(choice))
	for _, c := range choice {
		u := h.use(&demand.Parts[c.Part], c.Card)
		u.claim = f.claims[c.Part]
		uses = append(uses, u)
	}
	return uses
}

// left is all of the cards of which something is supposed to be left: there is no telling
// what the pod is going to have of them.
func (a *attempt) left(h *host) []use {
	var uses []use
	for i := range h.cards {
		if a.freed[h.cards[i].id] != (tally{}) {
			uses = append(uses, h.use(&placement.Part{Whole: true}, i))
		}
	}
	return uses
}

// use is what a part consumes of a card.
func (h *host) use(part *placement.Part, index int) use {
	u := use{id: h.cards[index].id}
	model := &h.node.Cards[index]
	if model.WholeOnly {
		return u
	}
	amount := part.Amount
	if part.Whole {
		amount = model.Total
		amount.Offline = 0
	}
	const perPercent = placement.WholeCompute / 100
	u.consumed = map[resourceapi.QualifiedName]resource.Quantity{
		claims.Cores:            *resource.NewQuantity(int64(amount.Compute/perPercent), resource.DecimalSI),
		claims.OfflineCores:     *resource.NewQuantity(int64(amount.Offline/perPercent), resource.DecimalSI),
		claims.Memory:           *resource.NewQuantity(amount.Memory.Bytes(), resource.BinarySI),
		published.CapacitySlots: *resource.NewQuantity(1, resource.DecimalSI),
	}
	return u
}
