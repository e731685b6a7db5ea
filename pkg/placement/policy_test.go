// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

func oneCard(compute placement.Milli, memory card.MiB, slots int32) placement.Card {
	total := placement.Amount{Compute: 1000, Offline: 1000, Memory: 24 << 10, Slots: 16}
	c := placement.Card{Total: total, Free: placement.Amount{Compute: compute, Offline: 1000, Memory: memory, Slots: slots}}
	c.Unclassed = 16 - slots
	return c
}

func aShare(compute placement.Milli, memory card.MiB, class share.Class) *placement.Demand {
	return &placement.Demand{Parts: []placement.Part{{Cards: 1, Amount: placement.Amount{Compute: compute, Memory: memory}, Class: class}}}
}

func TestExplainSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	bad := oneCard(1000, 24<<10, 16)
	bad.Tainted = true
	n := &placement.Node{Cards: []placement.Card{
		oneCard(900, 1024, 15), oneCard(900, 1024, 15), oneCard(900, 1024, 15),
		oneCard(100, 20<<10, 15), oneCard(100, 20<<10, 15), oneCard(100, 20<<10, 15), oneCard(100, 20<<10, 15), oneCard(100, 20<<10, 15),
		bad, bad,
	}}
	got := placement.Explain(n, aShare(400, 8<<10, share.NoClass))
	require.Equal(t, "no card has 40 % compute and 8 GiB free: 3 cards lack memory, 5 lack compute, 2 are tainted", got.String())
}

func TestCardOrder(t *testing.T) {
	t.Parallel()
	n := &placement.Node{Cards: []placement.Card{oneCard(1000, 24<<10, 16), oneCard(500, 12<<10, 15), oneCard(700, 18<<10, 15)}}
	d := aShare(300, 4<<10, share.NoClass)
	require.Equal(t, []int{1, 2, 0}, placement.Policies{Card: placement.Binpack}.Order(n, d))
	require.Equal(t, []int{0, 2, 1}, placement.Policies{Card: placement.Spread}.Order(n, d))
	require.Equal(t, []int{1, 2, 0}, placement.Policies{Card: placement.Fragmentation}.Order(n, d), "nothing is known of the workload")
}
