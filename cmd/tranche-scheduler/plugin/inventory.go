// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/placement"
)

// inventory is what the slices say of nodes and cards. Slices seldom change: a
// node is modelled again only when one of its slices is another object than
// before, which the scheduler never changes in place.
type inventory struct {
	mutex  sync.Mutex
	latest *stock
}

// stock is one state of the inventory. It is never changed.
type stock struct {
	// hosts by the name of the node.
	hosts map[string]*host
	// shared are slices that are not of one node.
	shared []*resourceapi.ResourceSlice
	// elsewhere has the devices of shared.
	elsewhere *foreign
}

// host is what the slices say of one node.
type host struct {
	name string
	// slices of the node, of all drivers, ordered as the allocator orders them.
	slices []*resourceapi.ResourceSlice
	// node has all of its cards free; cards says more of each of them.
	node  placement.Node
	cards []cardFacts
	// pools that the cards are in, and what the ledger last said of them.
	pools   []pool
	summary atomic.Pointer[summary]
	// modelled is false where there is something about the node's cards that only
	// the allocator understands.
	modelled bool
	// others are devices of other drivers.
	others *foreign
	// known remembers which cards selectors accept.
	known verdicts
}

// cardFacts is what placement does not need to know of a card.
type cardFacts struct {
	id     structured.DeviceID
	device *resourceapi.Device
	// from says which of the node's slices the card is published in.
	from int
	// taints that keep shares away, unless they are tolerated.
	taints []resourceapi.DeviceTaint
}

// update takes in the current slices.
func (v *inventory) update(list []*resourceapi.ResourceSlice) *stock {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.latest != nil && v.latest.isOf(list) {
		return v.latest
	}
	byNode, shared := group(list)
	next := &stock{hosts: make(map[string]*host, len(byNode)), shared: shared, elsewhere: newForeign(shared)}
	for name, of := range byNode {
		sortSlices(of)
		var h *host
		if v.latest != nil {
			h = v.latest.hosts[name]
		}
		if h == nil || !slices.Equal(h.slices, of) {
			h = newHost(name, of)
		}
		next.hosts[name] = h
	}
	v.latest = next
	return next
}

// isOf tells whether the list, in any order, has the very slices that the stock
// was made of: this is asked for every pod.
func (s *stock) isOf(list []*resourceapi.ResourceSlice) bool {
	same := 0
	for _, slice := range list {
		of := s.shared
		if slice.Spec.NodeName != nil {
			h := s.hosts[*slice.Spec.NodeName]
			if h == nil {
				return false
			}
			of = h.slices
		}
		if !slices.Contains(of, slice) {
			return false
		}
		same++
	}
	total := len(s.shared)
	for _, h := range s.hosts {
		total += len(h.slices)
	}
	return same == total
}

func group(list []*resourceapi.ResourceSlice) (byNode map[string][]*resourceapi.ResourceSlice, shared []*resourceapi.ResourceSlice) {
	byNode = make(map[string][]*resourceapi.ResourceSlice, len(list))
	for _, s := range list {
		if name := s.Spec.NodeName; name != nil {
			byNode[*name] = append(byNode[*name], s)
		} else {
			shared = append(shared, s)
		}
	}
	return byNode, shared
}

// sortSlices orders as the allocator does: by driver, by pool, by name.
func sortSlices(of []*resourceapi.ResourceSlice) {
	slices.SortFunc(of, func(a, b *resourceapi.ResourceSlice) int {
		return cmp.Or(cmp.Compare(a.Spec.Driver, b.Spec.Driver),
			cmp.Compare(a.Spec.Pool.Name, b.Spec.Pool.Name), cmp.Compare(a.Name, b.Name))
	})
}

func newHost(name string, of []*resourceapi.ResourceSlice) *host {
	h := &host{name: name, slices: of, node: placement.Node{Name: name}, modelled: true}
	var others []*resourceapi.ResourceSlice
	newest := map[string]int64{}
	published := map[string]int64{}
	for _, s := range of {
		if s.Spec.Driver != v1alpha1.DriverName {
			others = append(others, s)
			continue
		}
		pool := s.Spec.Pool
		switch generation, found := newest[pool.Name]; {
		case !found || pool.Generation > generation:
			newest[pool.Name], published[pool.Name] = pool.Generation, 1
		case pool.Generation == generation:
			published[pool.Name]++
		}
	}
	for from, s := range of {
		if s.Spec.Driver != v1alpha1.DriverName || s.Spec.Pool.Generation != newest[s.Spec.Pool.Name] {
			continue
		}
		if published[s.Spec.Pool.Name] != s.Spec.Pool.ResourceSliceCount || unusual(&s.Spec) {
			h.modelled = false
		}
		h.add(from, s)
	}
	h.others = newForeign(others)
	return h
}

func (h *host) add(from int, s *resourceapi.ResourceSlice) {
	for i := range s.Spec.Devices {
		device := &s.Spec.Devices[i]
		model, ok := cardOf(device)
		h.modelled = h.modelled && ok
		facts := cardFacts{id: structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, device.Name), device: device, from: from}
		for _, taint := range device.Taints {
			if taint.Effect == resourceapi.DeviceTaintEffectNoSchedule || taint.Effect == resourceapi.DeviceTaintEffectNoExecute {
				facts.taints = append(facts.taints, taint)
			}
		}
		if slices.ContainsFunc(h.cards, func(other cardFacts) bool { return other.id == facts.id }) {
			h.modelled = false // the allocator refuses the pool
		}
		if p := poolOf(facts.id); !slices.Contains(h.pools, p) {
			h.pools = append(h.pools, p)
		}
		h.node.Cards = append(h.node.Cards, model)
		h.cards = append(h.cards, facts)
	}
}

func (h *host) tainted() bool {
	return slices.ContainsFunc(h.cards, func(c cardFacts) bool { return len(c.taints) > 0 })
}
