// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

// world is an API server with claims and slices, a scheduler that allocates, and an
// informer that is behind.
type world struct {
	ledger  *ledger
	stock   *inventory
	version int
	names   int
	// claims as the API server has them, and what is in flight.
	claims, flying map[types.UID]*resourceapi.ResourceClaim
	// answers to the scheduler that are under way.
	answers map[types.UID]*resourceapi.ResourceClaim
	slices  map[string]*resourceapi.ResourceSlice
	// news that the informer has, and the ledger has not. The version of the latest is
	// that which the informer says.
	news     []func(cache.ResourceEventHandler)
	received string
}

func newWorld() *world {
	w := &world{claims: map[types.UID]*resourceapi.ResourceClaim{}, slices: map[string]*resourceapi.ResourceSlice{}}
	w.restart()
	return w
}

// restart begins with what the API server has, and with nothing in flight.
func (w *world) restart() {
	w.ledger, w.stock = newLedger(func() string { return w.received }), &inventory{}
	w.flying, w.answers = map[types.UID]*resourceapi.ResourceClaim{}, map[types.UID]*resourceapi.ResourceClaim{}
	w.news = nil
	for _, claim := range w.claims {
		w.tell(claim, func(h cache.ResourceEventHandler) { h.OnAdd(claim, true) })
	}
}

func (w *world) tell(claim *resourceapi.ResourceClaim, event func(cache.ResourceEventHandler)) {
	w.received = claim.ResourceVersion
	w.news = append(w.news, event)
}

// write stores a claim in a new version and tells the informer.
func (w *world) write(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	w.version++
	claim = claim.DeepCopy()
	claim.ResourceVersion = strconv.Itoa(w.version)
	w.claims[claim.UID] = claim
	w.tell(claim, func(h cache.ResourceEventHandler) { h.OnUpdate(nil, claim) })
	return claim
}

func (w *world) hear() {
	w.news[0](w.ledger.handlers())
	w.news = w.news[1:]
}

func (w *world) list() []*resourceapi.ResourceSlice { return slices.Collect(maps.Values(w.slices)) }

// some draws one of the keys that the condition holds for.
func some[T any](t *rapid.T, of map[types.UID]T, holds func(types.UID) bool) (types.UID, bool) {
	var keys []types.UID
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if holds(key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return "", false
	}
	return rapid.SampledFrom(keys).Draw(t, "which"), true
}

// drawAllocation takes something of some devices, whether there is room or not.
func (w *world) drawAllocation(t *rapid.T, claim *resourceapi.ResourceClaim) *resourceapi.AllocationResult {
	result := &resourceapi.AllocationResult{}
	for i := range rapid.IntRange(1, 2).Draw(t, "results") {
		r := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: v1alpha1.DriverName, Device: fmt.Sprintf("card-%d", rapid.IntRange(0, 3).Draw(t, "card"))}
		r.Pool = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pool")
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			r.Driver = "nic.example.com"
		case 1:
			r.AdminAccess = new(true)
		}
		if rapid.IntRange(0, 4).Draw(t, "shared") > 0 {
			w.names++
			r.ShareID = new(types.UID(fmt.Sprintf("%s-%d-%d", claim.UID, w.names, i)))
			r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{published.CapacitySlots: resource.MustParse("1")}
			for name, values := range map[resourceapi.QualifiedName][]string{
				published.CapacityCores: {"0", "20", "100"}, published.CapacityOfflineCores: {"0", "0", "30"}, published.CapacityMemory: {"1Gi", "1500Mi", "7Gi"},
			} {
				r.ConsumedCapacity[name] = resource.MustParse(rapid.SampledFrom(values).Draw(t, string(name)))
			}
		}
		result.Devices.Results = append(result.Devices.Results, r)
	}
	if rapid.Bool().Draw(t, "online") {
		result.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClaim,
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver:     v1alpha1.DriverName,
				Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig","class":"online"}`)},
			}},
		}}
	}
	return result
}

// step is one thing that happens.
func (w *world) step(t *rapid.T) {
	unallocated := func(uid types.UID) bool { return w.claims[uid].Status.Allocation == nil && w.flying[uid] == nil }
	always := func(types.UID) bool { return true }
	unwritten := func(uid types.UID) bool { return w.answers[uid] == nil }
	writable := func(uid types.UID) bool { return unwritten(uid) && w.claims[uid] != nil }
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0: // a claim comes
		w.names++
		uid := types.UID(fmt.Sprintf("claim-%d", w.names))
		w.write(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}})
	case 1, 2: // the scheduler allocates
		if uid, ok := some(t, w.claims, unallocated); ok {
			claim := w.claims[uid].DeepCopy()
			claim.Status.Allocation = w.drawAllocation(t, claim)
			w.flying[uid] = claim
			w.ledger.expect(uid, claim)
		}
	case 3: // it gives up
		if uid, ok := some(t, w.flying, unwritten); ok {
			delete(w.flying, uid)
			w.ledger.giveUp(uid)
		}
	case 4: // it writes
		if uid, ok := some(t, w.flying, writable); ok {
			claim := w.claims[uid].DeepCopy()
			claim.Status.Allocation = w.flying[uid].Status.Allocation
			w.answers[uid] = w.write(claim)
		}
	case 5: // it is answered, which may be later than the news of it, and of more
		if uid, ok := some(t, w.answers, always); ok {
			w.ledger.observe(w.answers[uid])
			w.ledger.giveUp(uid)
			delete(w.answers, uid)
			delete(w.flying, uid)
		}
	case 6: // a claim is released, or changes
		if uid, ok := some(t, w.claims, always); ok {
			claim := w.claims[uid].DeepCopy()
			if rapid.Bool().Draw(t, "released") {
				claim.Status.Allocation = nil
			}
			w.write(claim)
		}
	case 7: // a claim goes
		if uid, ok := some(t, w.claims, always); ok {
			claim := w.write(w.claims[uid])
			w.news = w.news[:len(w.news)-1]
			delete(w.claims, uid)
			w.tell(claim, func(h cache.ResourceEventHandler) { h.OnDelete(claim) })
		}
	case 8: // slices come, change or go
		name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node")
		slice := drawCards(t)
		slice.Name, slice.Spec.NodeName, slice.Spec.Pool.Name = name, &name, name
		w.slices[name] = slice
		if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
			delete(w.slices, name)
		}
	case 9:
		if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
			w.restart()
		}
	}
	w.hearSome(t)
}

func (w *world) hearSome(t *rapid.T) {
	for range rapid.IntRange(0, len(w.news)).Draw(t, "news") {
		w.hear()
	}
}

// scratch is all that is allocated, counted from the beginning.
func (w *world) scratch() *structured.AllocatedState {
	state := newState()
	for _, claim := range w.allocated() {
		for i := range claim.Status.Allocation.Devices.Results {
			if r := &claim.Status.Allocation.Devices.Results[i]; r.AdminAccess == nil {
				book(state, structured.MakeDeviceID(r.Driver, r.Pool, r.Device), r)
			}
		}
	}
	return state
}

// allocated are the claims that are, or are going to be.
func (w *world) allocated() []*resourceapi.ResourceClaim {
	var all []*resourceapi.ResourceClaim
	for uid, claim := range w.claims {
		if claim.Status.Allocation != nil {
			all = append(all, claim)
		} else if w.flying[uid] != nil {
			all = append(all, w.flying[uid])
		}
	}
	for uid, claim := range w.flying {
		if w.claims[uid] == nil {
			all = append(all, claim)
		}
	}
	return all
}

// counted is a ledger to which everything is told once.
func (w *world) counted() *ledger {
	l := newLedger(nil)
	for _, claim := range w.allocated() {
		l.expect(claim.UID, claim)
	}
	return l
}

func (w *world) attempts() (incremental, scratch *attempt) {
	stock := w.stock.update(w.list())
	made := func(l *ledger, state *structured.AllocatedState, incremental bool) *attempt {
		return &attempt{ledger: l, stock: stock, allocated: state, incremental: incremental, wish: &wish{}, findings: newFindings()}
	}
	return made(w.ledger, newState(), true), made(w.counted(), w.scratch(), false)
}

// Whatever happens, in whatever order the ledger hears of it: as soon as it is current,
// an attempt sees in it what there is when all claims are counted anew.
func TestTheLedgerIsWhatAllClaimsAddUpTo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			w.step(t)
			if len(w.news) > 0 {
				require.False(t, w.ledger.current())
				continue
			}
			incremental, scratch := w.attempts()
			for name, h := range incremental.stock.hosts {
				require.Equal(t, scratch.node(h), incremental.node(h), "node %s", name)
				incremental.only = name
				got := incremental.state()
				for _, card := range h.cards {
					require.Equal(t, scratch.allocated.AllocatedDevices.Has(card.id), got.AllocatedDevices.Has(card.id))
					requireSameCapacity(t, scratch.allocated.AggregatedCapacity[card.id], got.AggregatedCapacity[card.id])
				}
			}
		}
		for len(w.news) > 0 {
			w.hear()
		}
		for uid := range w.flying {
			w.ledger.giveUp(uid)
		}
		for _, claim := range w.claims {
			w.ledger.forget(claim)
		}
		require.Empty(t, w.ledger.claims, "nothing is left of claims that are gone")
		require.Empty(t, w.ledger.devices)
		require.Empty(t, w.ledger.kinds)
	})
}

func requireSameCapacity(t *rapid.T, want, got structured.ConsumedCapacity) {
	require.Len(t, got, len(want))
	for name, q := range want {
		require.Zero(t, q.Cmp(*got[name]), "%s: %s and %s", name, q, got[name])
	}
}

// Whoever is tried again because of a claim finds it in the ledger.
func TestTheLedgerIsToldBeforeAPodIsTriedAgain(t *testing.T) {
	t.Parallel()
	l := newLedger(nil)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "1"}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: v1alpha1.DriverName, Pool: "node", Device: "card-0"}},
	}}
	told := -1
	hint := l.heed(func(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) {
		told = len(l.devices)
		return fwk.Queue, nil
	})
	got, err := hint(ktesting.NewLogger(t, ktesting.DefaultConfig), nil, nil, claim)
	require.NoError(t, err)
	require.Equal(t, fwk.Queue, got)
	require.Equal(t, 1, told)
	released := claim.DeepCopy()
	released.ResourceVersion, released.Status.Allocation = "2", nil
	_, err = hint(ktesting.NewLogger(t, ktesting.DefaultConfig), nil, claim, released)
	require.NoError(t, err)
	require.Zero(t, told)
}

func TestTheLedgerKnowsWhetherItIsBehind(t *testing.T) {
	t.Parallel()
	received := ""
	l := newLedger(func() string { return received })
	handlers := l.handlers()
	claim := func(version string) *resourceapi.ResourceClaim {
		return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: version}}
	}
	require.False(t, l.current(), "nothing is known before the first news")
	received = "7"
	require.False(t, l.current())
	handlers.OnUpdate(nil, claim("7"))
	require.True(t, l.current())
	received = "8"
	require.False(t, l.current())
	l.observe(claim("8")) // what an API call answered says nothing of other claims
	require.False(t, l.current())
	handlers.OnDelete(cache.DeletedFinalStateUnknown{Obj: claim("8")})
	require.True(t, l.current())
	l.observe(claim("9"))
	require.Empty(t, l.claims, "news of the past does not bring a claim back")
}
