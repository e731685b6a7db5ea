// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/view"
)

// cluster is the nodes with their cards, what is held of them, and what each card
// is published as.
type cluster struct {
	nodes   []placement.Node
	devices map[string][]*resourceapi.Device
	held    []placement.Expected
	// hosts by name; none where the export shows no nodes.
	hosts map[string]*corev1.Node
	rules []resourceapi.DeviceTaintRule
	// anyone is the screen of who tolerates nothing.
	anyone screen
}

func clusterOf(o *Objects) *cluster {
	seen := view.Of(o.Objects)
	c := &cluster{devices: map[string][]*resourceapi.Device{}, hosts: map[string]*corev1.Node{}, rules: o.Rules}
	for i := range o.Nodes {
		c.hosts[o.Nodes[i].Name] = &o.Nodes[i]
	}
	at := map[[2]string]*placement.Card{}
	// Cards come by node.
	for i := range seen.Cards {
		from := &seen.Cards[i]
		if len(c.nodes) == 0 || c.nodes[len(c.nodes)-1].Name != from.Node {
			c.nodes = append(c.nodes, placement.Node{Name: from.Node})
		}
		n := &c.nodes[len(c.nodes)-1]
		n.Cards = append(n.Cards, cardOf(from))
		c.devices[n.Name] = append(c.devices[n.Name], from.Published)
	}
	next := 0
	for i := range c.nodes {
		for j := range c.nodes[i].Cards {
			from := &seen.Cards[next]
			at[[2]string{from.Node, from.Device}] = &c.nodes[i].Cards[j]
			next++
		}
	}
	for i := range seen.Shares {
		s := &seen.Shares[i]
		if on := at[[2]string{s.Node, s.Device}]; on != nil {
			hold(on, s)
		}
		c.held = append(c.held, placement.Expected{Demand: placement.Demand{Parts: []placement.Part{partOf(s)}}, Weight: 1})
	}
	return c
}

// has tells whether some card is accepted.
func (c *cluster) has(accepts func(*placement.Node, int) bool) bool {
	for i := range c.nodes {
		for j := range c.nodes[i].Cards {
			if accepts(&c.nodes[i], j) {
				return true
			}
		}
	}
	return false
}

func cardOf(from *view.Card) placement.Card {
	c := placement.Card{Name: from.Device, Model: from.Model, WholeOnly: !from.Shared}
	if from.Index != nil {
		c.Name = strconv.Itoa(*from.Index)
	}
	c.Total = placement.Amount{Compute: placement.WholeCompute, Slots: 1}
	c.Free = c.Total
	for _, a := range []struct {
		from        *view.Amount[card.Percent]
		total, free *placement.Milli
	}{{from.Cores, &c.Total.Compute, &c.Free.Compute}, {from.OfflineCores, &c.Total.Offline, &c.Free.Offline}} {
		if a.from != nil {
			*a.total, *a.free = placement.FromPercent(a.from.Total), placement.FromPercent(max(a.from.Free, 0))
		}
	}
	if from.Memory != nil {
		c.Total.Memory, c.Free.Memory = from.Memory.Total, max(from.Memory.Free, 0)
	}
	if from.Slots != nil {
		c.Total.Slots, c.Free.Slots = int32(from.Slots.Total), int32(max(from.Slots.Free, 0)) //nolint:gosec // at most 16 or so
	}
	return c
}

// hold counts the share. Amounts are counted already, but for those of a card
// that says nothing of them.
func hold(on *placement.Card, s *view.Share) {
	switch s.Class {
	case share.Online:
		on.Online++
	case share.Offline:
		on.OfflineShares++
	default:
		on.Unclassed++
	}
	if s.Whole {
		on.Free = placement.Amount{}
	}
}

func partOf(s *view.Share) placement.Part {
	if s.Whole {
		return placement.Part{Cards: 1, Whole: true, Class: s.Class}
	}
	return placement.Part{Cards: 1, Class: s.Class, Amount: placement.Amount{
		Compute: placement.FromPercent(s.Cores), Offline: placement.FromPercent(s.OfflineCores), Memory: s.Memory,
	}}
}
