// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strconv"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

// ledger follows the claims as they are allocated and released, for what the
// allocated state does not say: how many online and offline shares each card has,
// and what is usually asked for. It may be a moment behind, so it decides about
// preferences only, never about room.
type ledger struct {
	mutex  sync.Mutex
	claims map[types.UID]entry
	cards  map[structured.DeviceID]*[2]int32
	kinds  map[kind]int
	// changed counts changes of kinds since workload was made of them.
	changed  int
	workload *placement.Workload
}

// entry is what one claim holds.
type entry struct {
	holds []holding
	// version of the claim that said so. What is older is news from the past.
	version uint64
	// pending until the allocation is written: by then there may be news of the claim
	// in which it is not.
	pending bool
}

// holding is one allocated share.
type holding struct {
	id structured.DeviceID
	kind
}

// kind of demand, with what may be counted.
type kind struct {
	amount placement.Amount
	class  share.Class
	whole  bool
}

func newLedger() *ledger {
	return &ledger{
		claims: map[types.UID]entry{}, cards: map[structured.DeviceID]*[2]int32{}, kinds: map[kind]int{},
	}
}

// handlers for an informer of claims.
func (l *ledger) handlers() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.observe(obj) },
		UpdateFunc: func(_, obj any) { l.observe(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if claim, ok := obj.(*resourceapi.ResourceClaim); ok {
				l.forget(claim.UID)
			}
		},
	}
}

func (l *ledger) observe(obj any) {
	claim, ok := obj.(*resourceapi.ResourceClaim)
	if !ok {
		return
	}
	version, err := strconv.ParseUint(claim.ResourceVersion, 10, 64)
	if err != nil {
		return // no API server writes such
	}
	holds := holdings(claim)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if was := l.claims[claim.UID]; version >= was.version && !(was.pending && holds == nil) {
		l.set(claim.UID, entry{holds: holds, version: version})
	}
}

// expect takes in an allocation that is going to be written.
func (l *ledger) expect(claim *resourceapi.ResourceClaim) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.set(claim.UID, entry{holds: holdings(claim), pending: true})
}

// giveUp forgets an allocation that was expected, unless it has been written.
func (l *ledger) giveUp(uid types.UID) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.claims[uid].pending {
		l.set(uid, entry{})
	}
}

func (l *ledger) forget(uid types.UID) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.set(uid, entry{})
	delete(l.claims, uid)
}

// on is how many online and offline shares the card has.
func (l *ledger) on(id structured.DeviceID) (online, offline int32) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if n := l.cards[id]; n != nil {
		return n[0], n[1]
	}
	return 0, 0
}

func (l *ledger) set(uid types.UID, next entry) {
	was := l.claims[uid]
	l.claims[uid] = next
	if slices.Equal(was.holds, next.holds) {
		return
	}
	for _, h := range was.holds {
		l.count(h, -1)
	}
	for _, h := range next.holds {
		l.count(h, 1)
	}
}

func (l *ledger) count(h holding, by int) {
	l.changed++
	if l.kinds[h.kind] += by; l.kinds[h.kind] == 0 {
		delete(l.kinds, h.kind)
	}
	n := l.cards[h.id]
	if n == nil {
		n = &[2]int32{}
		l.cards[h.id] = n
	}
	switch h.class {
	case share.Online:
		n[0] += int32(by) //nolint:gosec // 1 or -1
	case share.Offline:
		n[1] += int32(by) //nolint:gosec // 1 or -1
	case share.NoClass:
	}
	if *n == [2]int32{} {
		delete(l.cards, h.id)
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

// holdings of an allocated claim on cards of ours.
func holdings(claim *resourceapi.ResourceClaim) []holding {
	if claim.Status.Allocation == nil {
		return nil
	}
	devices := &claim.Status.Allocation.Devices
	var of []holding
	for i := range devices.Results {
		r := &devices.Results[i]
		if r.Driver != v1alpha1.DriverName || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		h := holding{id: structured.MakeDeviceID(r.Driver, r.Pool, r.Device)}
		cores, offline, memory := r.ConsumedCapacity[claims.Cores], r.ConsumedCapacity[claims.OfflineCores], r.ConsumedCapacity[claims.Memory]
		h.amount = placement.Amount{
			Compute: placement.FromPercent(card.Percent(cores.Value())), Offline: placement.FromPercent(card.Percent(offline.Value())),
			Memory: card.MiB(memory.Value() >> 20),
		}
		h.class = share.NoClass
		if h.amount.Offline > 0 {
			h.class = share.Offline
		}
		if h.whole = r.ShareID == nil || !names(claim, r.Request); h.whole {
			h.amount = placement.Amount{}
		}
		for _, c := range resourceclaim.ConfigForResult(devices.Config, *r) {
			if c.Opaque == nil || c.Opaque.Driver != v1alpha1.DriverName {
				continue
			}
			if config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw); err == nil && config.Class != nil {
				h.class = *config.Class
			}
		}
		of = append(of, h)
	}
	return of
}

// names tells whether the request asks for an amount, and not for a whole card.
func names(claim *resourceapi.ResourceClaim, request string) bool {
	main, sub := resourceclaim.BaseRequestRef(request), ""
	if resourceclaim.IsSubRequestRef(request) {
		sub = request[len(main)+1:]
	}
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		if r.Name != main {
			continue
		}
		if r.Exactly != nil {
			return r.Exactly.Capacity != nil && len(r.Exactly.Capacity.Requests) > 0
		}
		for j := range r.FirstAvailable {
			if r.FirstAvailable[j].Name == sub {
				return r.FirstAvailable[j].Capacity != nil && len(r.FirstAvailable[j].Capacity.Requests) > 0
			}
		}
	}
	return false
}
