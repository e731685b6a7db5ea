// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/placement"
)

// ledger follows the claims as they are allocated and released: what is taken of each
// device, how many online and offline shares each card has, and what is usually asked
// for. Kubernetes has all but the classes, too, but gives only copies of the whole.
//
// What the scheduler allocates is in the ledger before it can be asked. What comes from
// the API server is there as soon as the ledger is current: only then is what it says
// of room all that there is to say. Classes and kinds are preferences, for which a
// moment does not matter.
type ledger struct {
	mutex   sync.RWMutex
	claims  map[types.UID]*entry
	devices map[structured.DeviceID]*device
	kinds   map[kind]int
	// stamps say of pools when something of them was last taken or released.
	stamps map[pool]uint64
	clock  uint64
	// gone are claims of which older news may still come.
	gone recent
	// changed counts changes of kinds since workload was made of them.
	changed  int
	workload *placement.Workload

	// received is the version of the latest news that the informer has, and handled
	// that of those which the ledger has taken in.
	received func() string
	handled  string
}

// entry is what one claim holds.
type entry struct {
	// holds by the status of the claim, in that version: what is older is news from
	// the past.
	holds   []holding
	version uint64
	// pending is an allocation that is not written yet. It counts as long as the status
	// has none.
	pending []holding
}

// device is what is taken of one device, and by whom.
type device struct {
	tally
	holders []*resourceapi.DeviceRequestAllocationResult
}

func newLedger(received func() string) *ledger {
	return &ledger{
		claims: map[types.UID]*entry{}, devices: map[structured.DeviceID]*device{}, kinds: map[kind]int{},
		stamps: map[pool]uint64{}, received: received,
	}
}

// handlers for the informer of claims.
func (l *ledger) handlers() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.handle(obj, l.observe) },
		UpdateFunc: func(_, obj any) { l.handle(obj, l.observe) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			l.handle(obj, l.forget)
		},
	}
}

func (l *ledger) handle(obj any, take func(*resourceapi.ResourceClaim)) {
	claim, ok := obj.(*resourceapi.ResourceClaim)
	if !ok {
		return
	}
	take(claim)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.handled = claim.ResourceVersion
}

// current tells whether the ledger has all that the informer has. Where it cannot tell,
// as after a list until something changes, it says no.
func (l *ledger) current() bool {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return l.handled != "" && l.handled == l.received()
}

// observe takes in a claim as the API server has it.
func (l *ledger) observe(claim *resourceapi.ResourceClaim) {
	version, err := strconv.ParseUint(claim.ResourceVersion, 10, 64)
	if err != nil {
		return // no API server writes such
	}
	if l.knows(claim.UID, version) {
		return
	}
	holds := holdings(claim)
	l.change(claim.UID, func(e *entry) {
		if version > e.version && !l.gone.has(claim.UID) {
			e.holds, e.version = holds, version
		}
	})
}

func (l *ledger) knows(uid types.UID, version uint64) bool {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	e := l.claims[uid]
	return e != nil && e.version >= version
}

// heed makes a hint that is given when a claim changes tell the ledger first. The hint
// may have a pod tried again, which then must not be refused for what was before.
func (l *ledger) heed(hint fwk.QueueingHintFn) fwk.QueueingHintFn {
	return func(logger klog.Logger, pod *v1.Pod, was, is any) (fwk.QueueingHint, error) {
		if claim, ok := is.(*resourceapi.ResourceClaim); ok {
			l.observe(claim)
		}
		return hint(logger, pod, was, is)
	}
}

// expect takes in an allocation that is going to be written.
func (l *ledger) expect(uid types.UID, claim *resourceapi.ResourceClaim) {
	pending := holdings(claim)
	l.change(uid, func(e *entry) { e.pending = pending })
}

// giveUp forgets an allocation that was expected. By then it is written, or it is not
// going to be.
func (l *ledger) giveUp(uid types.UID) {
	l.change(uid, func(e *entry) { e.pending = nil })
}

// forget takes in that a claim is gone.
func (l *ledger) forget(claim *resourceapi.ResourceClaim) {
	l.gone.add(claim.UID)
	l.change(claim.UID, func(e *entry) { e.holds, e.version = nil, 0 })
}

// change changes what is known of a claim, and counts anew what it holds.
func (l *ledger) change(uid types.UID, how func(*entry)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	e := l.claims[uid]
	if e == nil {
		e = &entry{}
		l.claims[uid] = e
	}
	was := e.effective()
	how(e)
	if e.version == 0 && len(e.pending) == 0 {
		delete(l.claims, uid)
	}
	next := e.effective()
	if slices.EqualFunc(was, next, func(a, b holding) bool {
		return a.result == b.result || a.kind == b.kind && equality.Semantic.DeepEqual(a.result, b.result)
	}) {
		// The holders are told apart by where their results are.
		for i := range next {
			next[i].result = was[i].result
		}
		return
	}
	for i := range was {
		l.count(&was[i], -1)
	}
	for i := range next {
		l.count(&next[i], 1)
	}
}

func (e *entry) effective() []holding {
	if len(e.holds) > 0 {
		return e.holds
	}
	return e.pending
}

func (l *ledger) count(h *holding, by int32) {
	d := l.devices[h.id]
	if d == nil {
		d = &device{}
		l.devices[h.id] = d
	}
	l.clock++
	l.stamps[poolOf(h.id)] = l.clock
	d.add(h.taken, by)
	if by > 0 {
		d.holders = append(d.holders, h.result)
	} else {
		d.holders = slices.DeleteFunc(d.holders, func(r *resourceapi.DeviceRequestAllocationResult) bool { return r == h.result })
	}
	if len(d.holders) == 0 {
		delete(l.devices, h.id)
	}
	if !h.ours {
		return
	}
	l.changed++
	if l.kinds[h.kind] += int(by); l.kinds[h.kind] == 0 {
		delete(l.kinds, h.kind)
	}
}

// summary is what is free of each of the node's cards. It is made anew when something
// of the node has been taken or released since, and not to be changed.
func (l *ledger) summary(h *host) *placement.Node {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	var stamp uint64
	for _, p := range h.pools {
		stamp = max(stamp, l.stamps[p])
	}
	if s := h.summary.Load(); s != nil && s.stamp == stamp {
		return &s.node
	}
	s := &summary{stamp: stamp, node: *h.node.Clone()}
	for i := range h.cards {
		if d := l.devices[h.cards[i].id]; d != nil {
			d.from(&s.node.Cards[i])
		}
	}
	h.summary.Store(s)
	return &s.node
}

// summary of a node as it was at a time.
type summary struct {
	stamp uint64
	node  placement.Node
}

// pool is the ID of a device without the device.
type pool structured.DeviceID

func poolOf(id structured.DeviceID) pool { return pool{Driver: id.Driver, Pool: id.Pool} }

// read tells of each card what is taken of it.
func (l *ledger) read(cards []cardFacts, do func(i int, taken tally)) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	for i := range cards {
		var taken tally
		if d := l.devices[cards[i].id]; d != nil {
			taken = d.tally
		}
		do(i, taken)
	}
}

// book adds to the state what is allocated of the devices that the slices have.
func (l *ledger) book(state *structured.AllocatedState, of []*resourceapi.ResourceSlice) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	for _, slice := range of {
		for i := range slice.Spec.Devices {
			id := structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name)
			if d := l.devices[id]; d != nil {
				for _, r := range d.holders {
					book(state, id, r)
				}
			}
		}
	}
}

// book adds a result to the state, as Kubernetes does.
func book(state *structured.AllocatedState, id structured.DeviceID, r *resourceapi.DeviceRequestAllocationResult) {
	if r.ShareID == nil {
		state.AllocatedDevices.Insert(id)
		return
	}
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	if r.ConsumedCapacity != nil {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}

func newState() *structured.AllocatedState {
	return &structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
}

// expected is the workload that the shares which run now stand for. It is made
// anew when one in 50 of them has changed: nothing depends on the last one.
func (l *ledger) expected() *placement.Workload {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	const fraction = 50
	if l.workload != nil && l.changed*fraction < len(l.claims) || l.changed == 0 {
		return l.workload
	}
	seen := make([]placement.Expected, 0, len(l.kinds))
	for k, n := range l.kinds {
		part := placement.Part{Cards: 1, Amount: k.amount, Whole: k.whole, Class: k.class}
		seen = append(seen, placement.Expected{Demand: placement.Demand{Parts: []placement.Part{part}}, Weight: float64(n)})
	}
	l.workload, l.changed = placement.NewWorkload(seen), 0
	return l.workload
}

// following is a tracker of claims that tells the ledger of what the scheduler is about
// to write.
type following struct {
	fwk.ResourceClaimTracker
	ledger *ledger
}

// SignalClaimPendingAllocation does not always take what it is given: the claim may have
// another allocation already, or another one in flight.
func (f *following) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	if err := f.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim); err != nil {
		return err
	}
	if pending := f.GetPendingAllocation(uid); pending != nil {
		inFlight := *claim
		inFlight.Status.Allocation = pending
		f.ledger.expect(uid, &inFlight)
	}
	return nil
}

func (f *following) MaybeRemoveClaimPendingAllocation(uid types.UID, force bool) bool {
	removed := f.ResourceClaimTracker.MaybeRemoveClaimPendingAllocation(uid, force)
	if removed {
		f.ledger.giveUp(uid)
	}
	return removed
}

// AssumeClaimAfterAPICall is given what the API server answered, which holds even where
// the tracker has newer news.
func (f *following) AssumeClaimAfterAPICall(claim *resourceapi.ResourceClaim) error {
	f.ledger.observe(claim)
	return f.ResourceClaimTracker.AssumeClaimAfterAPICall(claim)
}
