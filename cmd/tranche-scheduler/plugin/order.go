// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// arrange is the slices in the order in which the allocator is to try their
// cards: it takes the first that fits. What is given is shared with others and
// never changed.
func (a *attempt) arrange(ctx context.Context, list []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	if a.stock == nil {
		a.stock = a.inventory.update(list)
		a.rooms.keep(ctx, a)
	}
	if !a.knows() {
		return list
	}
	if a.only != "" {
		arranged := slices.Clone(a.stock.shared)
		if h := a.stock.hosts[a.only]; h != nil {
			arranged = append(arranged, a.arrangeHost(ctx, h)...)
		}
		return arranged
	}
	if a.trusted {
		return list // the allocator runs when a node is chosen
	}
	arranged := make([]*resourceapi.ResourceSlice, 0, len(list))
	arranged = append(arranged, a.stock.shared...)
	for _, h := range a.stock.hosts {
		arranged = append(arranged, a.arrangeHost(ctx, h)...)
	}
	return arranged
}

func (a *attempt) arrangeHost(ctx context.Context, h *host) []*resourceapi.ResourceSlice {
	order := a.order(ctx, h)
	if slices.IsSorted(order) {
		return h.slices
	}
	return h.reordered(order)
}

// order is the node's cards with those that were chosen first.
func (a *attempt) order(ctx context.Context, h *host) []int {
	demand, _ := a.demand(ctx, h)
	preferred := a.policies.Order(a.node(h), demand)
	order := make([]int, 0, len(h.cards))
	add := func(i int) {
		if !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	for _, use := range a.find(ctx, h.name).choice {
		add(use.Card)
	}
	for _, i := range preferred {
		add(i)
	}
	return order
}

// reordered is copies of the node's slices in which the cards stand in the given
// order. Where a pool has several slices, cards move from one to another: for the
// allocator they are one list.
func (h *host) reordered(order []int) []*resourceapi.ResourceSlice {
	of := slices.Clone(h.slices)
	next := map[string]int{} // by pool, the place in order that comes next
	for i, s := range of {
		pool := s.Spec.Pool.Name
		mine := func(c int) bool { return h.slices[h.cards[c].from].Spec.Pool.Name == pool }
		if !slices.ContainsFunc(h.cards, func(c cardFacts) bool { return c.from == i }) {
			continue // of another driver, or out of date
		}
		clone := *s
		clone.Spec.Devices = make([]resourceapi.Device, 0, len(s.Spec.Devices))
		at := next[pool]
		for ; len(clone.Spec.Devices) < len(s.Spec.Devices); at++ {
			if mine(order[at]) {
				clone.Spec.Devices = append(clone.Spec.Devices, *h.cards[order[at]].device)
			}
		}
		next[pool] = at
		of[i] = &clone
	}
	return of
}
