// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

func fragmentation(seen ...placement.Expected) placement.Policies {
	return placement.Policies{Node: placement.Fragmentation, Card: placement.Fragmentation, Workload: placement.NewWorkload(seen)}
}

func expect(weight float64, d *placement.Demand) placement.Expected {
	return placement.Expected{Demand: *d, Weight: weight}
}

func onHost(d *placement.Demand, cpu placement.MilliCPU, memory card.MiB) *placement.Demand {
	d.CPU, d.Memory = cpu, memory
	return d
}

func better(t *testing.T, p placement.Policies, d *placement.Demand, good, bad *placement.Node) {
	t.Helper()
	high, fits := p.Score(good, d)
	require.True(t, fits)
	low, fits := p.Score(bad, d)
	require.True(t, fits)
	require.Greater(t, high, low)
}

func TestFragmentationLeavesHolesThatAreAskedFor(t *testing.T) {
	t.Parallel()
	p := fragmentation(expect(9, aShare(500, 0, share.NoClass)), expect(1, aShare(300, 0, share.NoClass)))
	// 30 % of the first card would leave 20 %, which nobody asks for; of the second they leave 50 %.
	n := node(aCard(500, 20*gib, 1), aCard(800, 20*gib, 1), emptyCard())
	require.Equal(t, []int{1, 2, 0}, p.Order(n, aShare(300, 0, share.NoClass)))
	require.Equal(t, []int{0, 1, 2}, placement.Policies{Card: placement.Binpack}.Order(n, aShare(300, 0, share.NoClass)), "which binpack does not see")
}

func TestFragmentationSeesWhatTheHostIsEnoughFor(t *testing.T) {
	t.Parallel()
	host := func(cpu placement.MilliCPU, cards ...placement.Card) *placement.Node {
		n := node(cards...)
		n.CPU, n.FreeCPU = 96000, cpu
		return n
	}
	used := func() placement.Card { return aCard(0, 0, 1) }
	p := fragmentation(expect(1, onHost(whole(1), 12000, 0)))
	// What asks for CPU alone goes where no card is free, not where it would strand two.
	better(t, p, onHost(&placement.Demand{}, 16000, 0), host(48000, used(), used()), host(24000, emptyCard(), emptyCard()))
	// A card with little CPU goes where CPU has run out for others.
	better(t, p, onHost(whole(1), 1000, 0), host(2000, emptyCard()), host(24000, emptyCard(), emptyCard()))
	// The same holds of the host's memory.
	p = fragmentation(expect(1, onHost(whole(1), 0, 64*gib)))
	memory := func(free card.MiB) *placement.Node {
		n := node(emptyCard())
		n.Memory, n.FreeMemory = 512*gib, free
		return n
	}
	better(t, p, onHost(whole(1), 0, gib), memory(2*gib), memory(64*gib))
}

func TestFragmentationSeesMemoryOfCards(t *testing.T) {
	t.Parallel()
	p := fragmentation(expect(1, aShare(500, 12*gib, share.NoClass)))
	// 2 GiB of compute-poor work go where memory is short already.
	got := p.Order(node(aCard(500, 12*gib, 1), aCard(500, 4*gib, 1)), aShare(0, 2*gib, share.NoClass))
	require.Equal(t, []int{1, 0}, got)
}

func TestFragmentationSparesScarceModels(t *testing.T) {
	t.Parallel()
	wanted := whole(1)
	wanted.Models = []string{"T4"}
	of := func(model string) *placement.Node {
		return node(with(emptyCard(), func(c *placement.Card) { c.Model = model }))
	}
	t4, a10 := of("T4"), of("A10")
	p := fragmentation(expect(1, wanted), expect(9, whole(1)))
	better(t, p, whole(1), a10, t4)
	plain := func(p placement.Policies) float64 {
		good, _ := p.Score(a10, whole(1))
		bad, _ := p.Score(t4, whole(1))
		return good - bad
	}
	over := p
	over.Workload = p.Workload.Over([]*placement.Node{t4, a10, a10, a10, a10})
	require.Greater(t, plain(over), plain(p), "the fewer there are of it, the more it is spared")
}

func TestFragmentationKeepsWholeCardsTogether(t *testing.T) {
	t.Parallel()
	used := aCard(0, 0, 1)
	p := fragmentation(expect(1, whole(4)), expect(9, whole(1)))
	better(t, p, whole(1), node(emptyCard(), emptyCard(), emptyCard(), used), node(emptyCard(), emptyCard(), emptyCard(), emptyCard()))
}

func TestWorkload(t *testing.T) {
	t.Parallel()
	a, b := aShare(300, gib, share.NoClass), aShare(500, 2*gib, share.NoClass)
	b.Models = []string{"T4", "A10"}
	again := aShare(500, 2*gib, share.NoClass)
	again.Models = []string{"A10", "T4"}
	merged := placement.NewWorkload([]placement.Expected{expect(3, a), expect(2, b)})
	parts := placement.NewWorkload([]placement.Expected{expect(1, again), expect(2, a), expect(1, b), expect(1, a)})
	n := node(emptyCard(), aCard(700, 20*gib, 1))
	for _, d := range []*placement.Demand{a, b, whole(1)} {
		p := placement.Policies{Node: placement.Fragmentation, Card: placement.Fragmentation, Workload: merged}
		q := placement.Policies{Node: placement.Fragmentation, Card: placement.Fragmentation, Workload: parts}
		high, _ := p.Score(n, d)
		low, _ := q.Score(n, d)
		require.InDelta(t, high, low, 1e-12, "neither order nor the way in which it is counted matters")
	}
	nothing := placement.NewWorkload([]placement.Expected{expect(0, a), expect(1, anOffline(300, gib)), expect(1, &placement.Demand{})})
	binpack := placement.Policies{Node: placement.Binpack, Card: placement.Binpack}
	want, _ := binpack.Score(n, a)
	for _, w := range []*placement.Workload{nil, placement.NewWorkload(nil), nothing} {
		got, _ := placement.Policies{Node: placement.Fragmentation, Card: placement.Fragmentation, Workload: w}.Score(n, a)
		require.InDelta(t, want, got, 0, "who expects nothing packs")
	}
}

// What one attempt of the scheduler costs on a thousand nodes of eight cards.
func BenchmarkScore(b *testing.B) {
	var seen []placement.Expected
	for i := range 60 {
		seen = append(seen, expect(float64(i+1), aShare(placement.Milli(50+i*15), card.MiB(i+1)*256, share.NoClass)))
	}
	var nodes []*placement.Node
	for i := range 1000 {
		n := &placement.Node{Name: fmt.Sprint(i)}
		for j := range 8 {
			n.Cards = append(n.Cards, aCard(placement.Milli((i*7+j*13)%10*100), card.MiB((i*5+j*3)%24)*gib, 1))
		}
		nodes = append(nodes, n)
	}
	d := aShare(200, 2*gib, share.NoClass)
	for _, text := range []string{"spread/binpack", "fragmentation"} {
		p, err := placement.Parse(text)
		require.NoError(b, err)
		p.Workload = placement.NewWorkload(seen)
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, n := range nodes {
					p.Score(n, d)
				}
			}
		})
	}
}
