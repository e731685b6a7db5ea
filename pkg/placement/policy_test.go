// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	gib        card.MiB = 1024
	cardMemory          = 24 * gib
)

// aCard has that much free of each; what is taken belongs to shares of no class.
func aCard(compute placement.Milli, memory card.MiB, shares int32) placement.Card {
	total := placement.Amount{Compute: placement.WholeCompute, Offline: placement.WholeCompute, Memory: cardMemory, Slots: 16}
	free := total
	free.Compute, free.Memory, free.Slots = compute, memory, total.Slots-shares
	return placement.Card{Model: "A10", Total: total, Free: free, Unclassed: shares}
}

func emptyCard() placement.Card { return aCard(placement.WholeCompute, cardMemory, 0) }

func with(c placement.Card, change func(*placement.Card)) placement.Card {
	change(&c)
	return c
}

func node(cards ...placement.Card) *placement.Node { return &placement.Node{Name: "n", Cards: cards} }

func aShare(compute placement.Milli, memory card.MiB, class share.Class) *placement.Demand {
	return &placement.Demand{Parts: []placement.Part{{Cards: 1, Amount: placement.Amount{Compute: compute, Memory: memory}, Class: class}}}
}

func anOffline(compute placement.Milli, memory card.MiB) *placement.Demand {
	return &placement.Demand{Parts: []placement.Part{{Cards: 1, Amount: placement.Amount{Offline: compute, Memory: memory}, Class: share.Offline}}}
}

func whole(cards int) *placement.Demand {
	return &placement.Demand{Parts: []placement.Part{{Cards: cards, Whole: true, Class: share.NoClass}}}
}

func TestCardOrder(t *testing.T) {
	t.Parallel()
	online := func(c *placement.Card) { c.Online, c.Unclassed = c.Unclassed, 0 }
	offline := func(c *placement.Card) { c.OfflineShares, c.Unclassed = c.Unclassed, 0 }
	for name, tc := range map[string]struct {
		card   placement.Policy
		node   *placement.Node
		demand *placement.Demand
		want   []int
	}{
		"binpack takes the fullest that fits first": {
			placement.Binpack, node(emptyCard(), aCard(500, 12*gib, 1), aCard(700, 18*gib, 1), aCard(100, gib, 2)),
			aShare(300, 4*gib, share.NoClass),
			[]int{1, 2, 0, 3},
		},
		"spread takes the emptiest first": {
			placement.Spread, node(aCard(500, 12*gib, 1), emptyCard(), aCard(700, 18*gib, 1)),
			aShare(300, 4*gib, share.NoClass),
			[]int{1, 2, 0},
		},
		"memory counts as much as compute": {
			placement.Binpack, node(aCard(400, 20*gib, 1), aCard(500, 5*gib, 1)), aShare(300, 4*gib, share.NoClass), []int{1, 0},
		},
		"fragmentation that expects nothing is binpack": {
			placement.Fragmentation, node(emptyCard(), aCard(500, 12*gib, 1)), aShare(300, 4*gib, share.NoClass), []int{1, 0},
		},
		"online shares spread whatever the policy": {
			placement.Binpack, node(aCard(500, 12*gib, 1), emptyCard()), aShare(300, 4*gib, share.Online), []int{1, 0},
		},
		"online shares would rather be on a full card than beside offline work": {
			placement.Binpack, node(with(aCard(1000, 20*gib, 1), offline), with(aCard(400, 4*gib, 3), online)),
			aShare(300, 4*gib, share.Online),
			[]int{1, 0},
		},
		"offline shares pack whatever the policy": {
			placement.Spread, node(emptyCard(), with(aCard(1000, 12*gib, 1), offline)), anOffline(300, 4*gib), []int{1, 0},
		},
		"offline shares would rather have an empty card than be beside online work": {
			placement.Spread, node(with(aCard(200, 12*gib, 1), online), emptyCard()), anOffline(300, 4*gib), []int{1, 0},
		},
		"tainted cards and those that are given whole come last": {
			placement.Spread, node(
				with(emptyCard(), func(c *placement.Card) { c.Tainted = true }), with(emptyCard(), func(c *placement.Card) { c.WholeOnly = true }),
				aCard(900, 20*gib, 1),
			), aShare(300, 4*gib, share.NoClass), []int{2, 0, 1},
		},
		"a card that has less to give than it had is not given whole": {
			placement.Binpack, node(aCard(1000, 20*gib, 0), emptyCard()), whole(1), []int{1, 0},
		},
		"whole cards are those that nobody is on": {
			placement.Binpack, node(aCard(1000, cardMemory, 1), emptyCard(), aCard(900, cardMemory, 1)), whole(1), []int{1, 0, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, placement.Policies{Node: placement.Spread, Card: tc.card}.Order(tc.node, tc.demand))
		})
	}
}

func TestNodesCompare(t *testing.T) {
	t.Parallel()
	empty, half := node(emptyCard(), emptyCard()), node(aCard(400, 10*gib, 1), aCard(500, 12*gib, 1))
	d := aShare(300, 4*gib, share.NoClass)
	score := func(p placement.Policies, n *placement.Node, d *placement.Demand) float64 {
		s, fits := p.Score(n, d)
		require.True(t, fits)
		return s
	}
	spread, binpack := placement.Default(), placement.Policies{Node: placement.Binpack, Card: placement.Binpack}
	require.Greater(t, score(spread, empty, d), score(spread, half, d))
	require.Greater(t, score(binpack, half, d), score(binpack, empty, d))

	// Sums hide what cards have: 60 % are free on neither card of a node that has 90 % free.
	_, fits := spread.Score(half, aShare(600, 4*gib, share.NoClass))
	require.False(t, fits)

	wholeOnly := func(c *placement.Card) { c.WholeOnly, c.Total.Offline, c.Free.Offline = true, 0, 0 }
	unused, used := node(with(emptyCard(), wholeOnly), with(emptyCard(), wholeOnly)), node(with(emptyCard(), wholeOnly), with(aCard(0, 0, 16), wholeOnly))
	require.Greater(t, score(spread, unused, whole(1)), score(spread, used, whole(1)), "cards that go as a whole are counted, too")

	beside := node(with(aCard(1000, 20*gib, 1), func(c *placement.Card) { c.OfflineShares, c.Unclassed = 1, 0 }))
	online := aShare(300, 4*gib, share.Online)
	require.Greater(t, score(spread, half, online), score(spread, beside, online), "away from offline work before anything else")
	require.Greater(t, score(binpack, empty, online), score(binpack, beside, online))
}

func TestPartsOfOneDemandFindRoomTogether(t *testing.T) {
	t.Parallel()
	part := func(compute placement.Milli, cards int) placement.Part {
		return placement.Part{Cards: cards, Amount: placement.Amount{Compute: compute, Memory: gib}, Class: share.NoClass}
	}
	for name, tc := range map[string]struct {
		node  *placement.Node
		parts []placement.Part
		want  placement.Choice
	}{
		"both on one card where that has room": {node(aCard(500, 12*gib, 1), emptyCard()), []placement.Part{part(200, 1), part(300, 1)}, placement.Choice{{0, 0}, {1, 0}}},
		"the second moves on":                  {node(aCard(500, 12*gib, 1), emptyCard()), []placement.Part{part(300, 1), part(400, 1)}, placement.Choice{{0, 1}, {1, 0}}},
		"a part of two cards takes two":        {node(aCard(500, 12*gib, 1), emptyCard()), []placement.Part{part(300, 2)}, placement.Choice{{0, 0}, {0, 1}}},
		"the whole card is kept for who needs it": {
			node(emptyCard(), aCard(900, 20*gib, 1)),
			[]placement.Part{part(800, 1), {Cards: 1, Whole: true, Class: share.NoClass}},
			placement.Choice{{0, 1}, {1, 0}},
		},
		"what only one card accepts gets that card": {
			node(emptyCard(), emptyCard()),
			[]placement.Part{part(600, 1), func() placement.Part {
				p := part(600, 1)
				p.Accepts = func(_ *placement.Node, card int) bool { return card == 0 }
				return p
			}()},
			placement.Choice{{0, 1}, {1, 0}},
		},
		"two of 60 % do not fit on one card": {node(emptyCard()), []placement.Part{part(600, 1), part(600, 1)}, nil},
		"two cards are not one":              {node(emptyCard()), []placement.Part{part(100, 2)}, nil},
		"no part is always placed":           {node(), nil, placement.Choice{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, fits := placement.Policies{Node: placement.Binpack, Card: placement.Binpack}.Choose(tc.node, &placement.Demand{Parts: tc.parts})
			require.Equal(t, tc.want != nil, fits)
			require.ElementsMatch(t, tc.want, got)
		})
	}
}

func TestTheHostCountsWhereItIsKnown(t *testing.T) {
	t.Parallel()
	d := aShare(100, gib, share.NoClass)
	d.CPU, d.Memory = 4000, 8*gib
	n := node(emptyCard())
	require.True(t, placement.Fits(n, d), "nothing is known of the host")
	n.CPU, n.FreeCPU = 8000, 3999
	require.False(t, placement.Fits(n, d))
	n.FreeCPU = 4000
	require.True(t, placement.Fits(n, d))
	n.Memory, n.FreeMemory = 64*gib, 7*gib
	require.False(t, placement.Fits(n, d))
}

func TestModels(t *testing.T) {
	t.Parallel()
	d := whole(1)
	d.Models = []string{"T4", "A10"}
	require.True(t, placement.Fits(node(emptyCard()), d))
	d.Models = []string{"T4"}
	require.False(t, placement.Fits(node(emptyCard()), d))
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]placement.Policies{
		"binpack":              {Node: placement.Binpack, Card: placement.Binpack},
		"spread/binpack":       placement.Default(),
		"binpack/spread":       {Node: placement.Binpack, Card: placement.Spread},
		"fragmentation":        {Node: placement.Fragmentation, Card: placement.Fragmentation},
		"spread/fragmentation": {Node: placement.Spread, Card: placement.Fragmentation},
	} {
		got, err := placement.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
	}
	for _, text := range []string{"", "tight", "spread/", "/binpack", "spread/binpack/spread"} {
		_, err := placement.Parse(text)
		require.ErrorContains(t, err, "NODE/CARD is right", text)
	}
}

func TestExplainSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	tainted := with(emptyCard(), func(c *placement.Card) { c.Tainted = true })
	fullOfShares := with(aCard(900, 20*gib, 16), func(c *placement.Card) { c.Free.Slots = 0 })
	for name, tc := range map[string]struct {
		nodes  []*placement.Node
		demand *placement.Demand
		want   string
	}{
		"memory, compute and taints": {
			[]*placement.Node{
				node(aCard(900, gib, 1), aCard(900, gib, 1), aCard(100, 20*gib, 1), aCard(100, 20*gib, 1), tainted),
				node(aCard(900, gib, 1), aCard(100, 20*gib, 1), aCard(100, 20*gib, 1), aCard(100, 20*gib, 1), tainted),
			},
			aShare(400, 8*gib, share.NoClass),
			"no card has 40 % compute and 8 GiB free: 3 cards lack memory, 5 lack compute, 2 are tainted",
		},
		"one card": {
			[]*placement.Node{node(aCard(100, 300, 1))},
			aShare(105, 1500, share.NoClass),
			"no card has 10.5 % compute and 1500 MiB free: 1 card lacks both compute and memory",
		},
		"slots": {
			[]*placement.Node{node(fullOfShares)},
			aShare(100, gib, share.NoClass),
			"no card has 10 % compute and 1 GiB free: 1 card has as many shares as it takes",
		},
		"offline compute": {
			[]*placement.Node{node(with(emptyCard(), func(c *placement.Card) { c.Free.Offline = 100; c.OfflineShares = 1 }))},
			anOffline(300, gib),
			"no card has 30 % offline compute and 1 GiB free: 1 card lacks compute",
		},
		"whole cards that are in use": {
			[]*placement.Node{node(aCard(900, gib, 1), aCard(900, gib, 1), emptyCard())},
			whole(2),
			"no node has 2 unused cards: 2 cards are in use, 1 node has such cards, but too few",
		},
		"the host": {
			[]*placement.Node{{CPU: 8000, FreeCPU: 100, Cards: []placement.Card{emptyCard()}}},
			&placement.Demand{CPU: 4000, Parts: aShare(100, gib, share.NoClass).Parts},
			"no node has room for all that is asked for: 1 node lacks CPU or memory of the host",
		},
		"another kind": {
			[]*placement.Node{node(emptyCard(), emptyCard())},
			&placement.Demand{Models: []string{"H100"}, Parts: aShare(100, gib, share.NoClass).Parts},
			"no card has 10 % compute and 1 GiB free: 2 cards are of another kind",
		},
		"shares of a card that is given whole": {
			[]*placement.Node{node(with(emptyCard(), func(c *placement.Card) { c.WholeOnly = true }))},
			aShare(100, 0, share.NoClass),
			"no card has 10 % compute free: 1 card is given whole only",
		},
		"parts that fit each by itself": {
			[]*placement.Node{node(emptyCard())},
			&placement.Demand{Parts: append(aShare(600, gib, share.NoClass).Parts, aShare(600, gib, share.NoClass).Parts...)},
			"no node has room for all that is asked for: 1 node has room for each request alone",
		},
		"one whole card": {[]*placement.Node{node(aCard(900, gib, 1), aCard(900, gib, 1))}, whole(1), "no card is unused: 2 cards are in use"},
		"memory alone": {
			[]*placement.Node{node(aCard(0, gib, 1), aCard(0, gib, 1))}, aShare(0, 8*gib, share.NoClass), "no card has 8 GiB free: 2 cards lack memory",
		},
		"a slot alone": {
			[]*placement.Node{node(fullOfShares, fullOfShares)},
			aShare(0, 0, share.NoClass),
			"no card has room for a share: 2 cards have as many shares as they take",
		},
		"more memory than any card has": {
			[]*placement.Node{node(emptyCard()), node(with(emptyCard(), func(c *placement.Card) { c.Total.Memory, c.Free.Memory = 20000, 20000 }))},
			aShare(100, 64*gib, share.NoClass),
			"no card has 10 % compute and 64 GiB free: 2 cards lack memory; the largest card has 24 GiB",
		},
		"several cards of a node": {
			[]*placement.Node{node(aCard(100, gib, 1), emptyCard())},
			&placement.Demand{Parts: []placement.Part{{Cards: 2, Amount: placement.Amount{Compute: 400, Memory: gib}}}},
			"no node has 2 cards with 40 % compute and 1 GiB free: 1 card lacks compute, 1 node has such cards, but too few",
		},
		"nothing": {nil, aShare(100, gib, share.NoClass), "no card has room for a share"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sum placement.Shortage
			for _, n := range tc.nodes {
				sum.Add(placement.Explain(n, tc.demand))
			}
			require.Equal(t, tc.want, sum.String())
		})
	}
	fits := placement.Explain(node(emptyCard(), tainted), aShare(100, gib, share.NoClass))
	require.Zero(t, fits.Tainted, "nothing is missing where there is room")
	require.Equal(t, 2, fits.Cards)
}
