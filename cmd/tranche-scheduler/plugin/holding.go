// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

// holding is what an allocated claim has of one device.
type holding struct {
	id     structured.DeviceID
	result *resourceapi.DeviceRequestAllocationResult
	taken  tally
	// ours says that the device is a card of ours; otherwise there is no kind.
	ours bool
	kind
}

// kind of demand, with what may be counted.
type kind struct {
	amount placement.Amount
	class  share.Class
	whole  bool
}

// tally is what is taken of one device, summed up over claims.
type tally struct {
	cores, offlineCores, bytes, slots int64
	// alone counts those who have all of a device that is never shared.
	alone int32
	// online and offline shares.
	online, offline int32
}

func (t *tally) add(o tally, by int32) {
	t.cores += int64(by) * o.cores
	t.offlineCores += int64(by) * o.offlineCores
	t.bytes += int64(by) * o.bytes
	t.slots += int64(by) * o.slots
	t.alone += by * o.alone
	t.online += by * o.online
	t.offline += by * o.offline
}

// amount is what is taken of a card that is shared.
func (t *tally) amount() placement.Amount {
	return placement.Amount{
		Compute: placement.FromPercent(card.Percent(t.cores)), Offline: placement.FromPercent(card.Percent(t.offlineCores)),
		Memory: card.MiB(t.bytes >> 20), Slots: slots(t.slots),
	}
}

func slots(n int64) int32 { return int32(min(max(n, 0), maxSlots)) }

// tallyIn is what the state says of a device. It does not tell classes.
func tallyIn(state *structured.AllocatedState, id structured.DeviceID) tally {
	var t tally
	if state.AllocatedDevices.Has(id) {
		t.alone = 1
	}
	consumed, ok := state.AggregatedCapacity[id]
	if !ok {
		return t
	}
	value := func(name resourceapi.QualifiedName, otherwise int64) int64 {
		if q := consumed[name]; q != nil {
			return q.Value()
		}
		return otherwise
	}
	t.cores, t.offlineCores, t.bytes = value(claims.Cores, 0), value(claims.OfflineCores, 0), value(claims.Memory, 0)
	t.slots = value(published.CapacitySlots, 1)
	return t
}

// holdings of an allocated claim.
func holdings(claim *resourceapi.ResourceClaim) []holding {
	if claim.Status.Allocation == nil {
		return nil
	}
	devices := &claim.Status.Allocation.Devices
	of := make([]holding, 0, len(devices.Results))
	for i := range devices.Results {
		r := &devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		h := holding{id: structured.MakeDeviceID(r.Driver, r.Pool, r.Device), result: r, taken: takenBy(r), ours: r.Driver == v1alpha1.DriverName}
		if h.ours {
			h.kind = kindOf(claim, r, &h.taken)
			switch h.class {
			case share.Online:
				h.taken.online = 1
			case share.Offline:
				h.taken.offline = 1
			case share.NoClass:
			}
		}
		of = append(of, h)
	}
	return of
}

func takenBy(r *resourceapi.DeviceRequestAllocationResult) tally {
	if r.ShareID == nil {
		return tally{alone: 1}
	}
	if r.ConsumedCapacity == nil {
		return tally{}
	}
	value := func(name resourceapi.QualifiedName, otherwise int64) int64 {
		if q, ok := r.ConsumedCapacity[name]; ok {
			return q.Value()
		}
		return otherwise
	}
	return tally{
		cores: value(claims.Cores, 0), offlineCores: value(claims.OfflineCores, 0), bytes: value(claims.Memory, 0),
		slots: value(published.CapacitySlots, 1),
	}
}

func kindOf(claim *resourceapi.ResourceClaim, r *resourceapi.DeviceRequestAllocationResult, taken *tally) kind {
	k := kind{amount: taken.amount(), class: share.NoClass}
	k.amount.Slots = 0
	if k.amount.Offline > 0 {
		k.class = share.Offline
	}
	if k.whole = r.ShareID == nil || !names(claim, r.Request); k.whole {
		k.amount = placement.Amount{}
	}
	for _, c := range resourceclaim.ConfigForResult(claim.Status.Allocation.Devices.Config, *r) {
		if c.Opaque == nil || c.Opaque.Driver != v1alpha1.DriverName {
			continue
		}
		if config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw); err == nil && config.Class != nil {
			k.class = *config.Class
		}
	}
	return k
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
