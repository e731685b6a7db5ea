// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	stdslices "slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/slices"
)

// place is where a card is: allocations name it by pool and device.
type place struct{ pool, device string }

// cardSet is the cards of the newest generation of each pool.
type cardSet map[place]*Card

func cardsOf(all []resourceapi.ResourceSlice) cardSet {
	newest := map[string]int64{}
	for i := range all {
		if pool := all[i].Spec.Pool; all[i].Spec.Driver == slices.DriverName {
			newest[pool.Name] = max(newest[pool.Name], pool.Generation)
		}
	}
	cards := cardSet{}
	for i := range all {
		spec := &all[i].Spec
		// Slices of older generations are about to be deleted.
		if spec.Driver != slices.DriverName || spec.Pool.Generation < newest[spec.Pool.Name] {
			continue
		}
		node := spec.Pool.Name
		if spec.NodeName != nil {
			node = *spec.NodeName
		}
		for j := range spec.Devices {
			device := &spec.Devices[j]
			cards[place{spec.Pool.Name, device.Name}] = cardOf(node, device)
		}
	}
	return cards
}

func (s cardSet) at(pool, device string) (*Card, bool) {
	c, found := s[place{pool, device}]
	return c, found
}

func (s cardSet) sorted() []Card {
	cards := make([]Card, 0, len(s))
	for _, c := range s {
		cards = append(cards, *c)
	}
	stdslices.SortFunc(cards, func(a, b Card) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), compareIndex(a.Index, b.Index), cmp.Compare(a.Device, b.Device))
	})
	return cards
}

// compareIndex puts what has no index last.
func compareIndex(a, b *int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*a, *b)
}

func cardOf(node string, d *resourceapi.Device) *Card {
	c := &Card{
		Node: node, Device: d.Name, Published: d,
		UUID:         text(d, slices.AttributeUUID),
		Model:        text(d, slices.AttributeProductName),
		Vendor:       text(d, slices.AttributeVendor),
		Shared:       d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations,
		Cores:        amount(d, slices.CapacityCores, percent),
		OfflineCores: amount(d, slices.CapacityOfflineCores, percent),
		Memory:       amount(d, slices.CapacityMemory, mebibytes),
		Slots:        amount(d, slices.CapacitySlots, count),
	}
	if n := d.Attributes[slices.AttributeIndex].IntValue; n != nil {
		index := int(*n)
		c.Index = &index
	}
	for _, t := range d.Taints {
		c.Taints = append(c.Taints, Taint{
			Kind: strings.TrimPrefix(t.Key, slices.DriverName+"/"), Message: t.Value, Effect: t.Effect,
		})
	}
	return c
}

// text is an attribute as published, empty where there is none.
func text(d *resourceapi.Device, name resourceapi.QualifiedName) string {
	if s := d.Attributes[name].StringValue; s != nil {
		return *s
	}
	return ""
}

func amount[T ~int | ~int64](d *resourceapi.Device, name resourceapi.QualifiedName, in func(resource.Quantity) T) *Amount[T] {
	capacity, found := d.Capacity[name]
	if !found {
		return nil
	}
	total := in(capacity.Value)
	return &Amount[T]{Free: total, Total: total}
}

func percent(q resource.Quantity) card.Percent { return card.Percent(q.Value()) }

func count(q resource.Quantity) int { return int(q.Value()) }

// mebibytes rounds up, as the scheduler does with what it hands out. What is
// published is in whole MiB already.
func mebibytes(q resource.Quantity) card.MiB {
	bytes, mebibyte := q.Value(), card.MiB(1).Bytes()
	n := bytes / mebibyte
	if bytes%mebibyte > 0 {
		n++
	}
	return card.MiB(n)
}
