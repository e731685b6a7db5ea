// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

func drawDemand(t *rapid.T) *placement.Demand {
	d := &placement.Demand{
		CPU:    placement.MilliCPU(rapid.IntRange(0, 8000).Draw(t, "cpu")),
		Memory: card.MiB(rapid.IntRange(0, 8000).Draw(t, "host memory")),
	}
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		part := placement.Part{
			Cards: rapid.IntRange(1, 3).Draw(t, "cards"),
			Whole: rapid.IntRange(0, 4).Draw(t, "whole") == 0,
			Class: rapid.SampledFrom(share.Classes()).Draw(t, "class"),
		}
		if !part.Whole {
			part.Amount.Memory = card.MiB(rapid.IntRange(0, 12).Draw(t, "memory")) * gib
			compute := placement.Milli(rapid.IntRange(0, 100).Draw(t, "compute") * 10)
			if part.Class == share.Offline {
				part.Amount.Offline = compute
			} else {
				part.Amount.Compute = compute
			}
		}
		d.Parts = append(d.Parts, part)
	}
	if rapid.IntRange(0, 3).Draw(t, "choosy") == 0 {
		d.Models = []string{rapid.SampledFrom([]string{"A10", "T4"}).Draw(t, "model")}
	}
	return d
}

func drawNode(t *rapid.T) *placement.Node {
	n := &placement.Node{Name: "n", CPU: 64000, FreeCPU: 64000, Memory: 64000, FreeMemory: 64000}
	for range rapid.IntRange(0, 5).Draw(t, "cards of the node") {
		c := emptyCard()
		c.Model = rapid.SampledFrom([]string{"A10", "T4"}).Draw(t, "card")
		c.Total.Memory = rapid.SampledFrom([]card.MiB{0, 16 * gib, 24 * gib}).Draw(t, "size")
		c.Free = c.Total
		c.Tainted = rapid.IntRange(0, 9).Draw(t, "tainted") == 0
		c.WholeOnly = rapid.IntRange(0, 9).Draw(t, "whole only") == 0
		n.Cards = append(n.Cards, c)
	}
	return n
}

func drawPolicies(t *rapid.T) placement.Policies {
	p := placement.Policies{
		Node: rapid.SampledFrom(placement.Known()).Draw(t, "node policy"),
		Card: rapid.SampledFrom(placement.Known()).Draw(t, "card policy"),
	}
	var seen []placement.Expected
	for range rapid.IntRange(0, 4).Draw(t, "kinds") {
		seen = append(seen, placement.Expected{Demand: *drawDemand(t), Weight: float64(rapid.IntRange(0, 9).Draw(t, "weight"))})
	}
	p.Workload = placement.NewWorkload(seen)
	return p
}

// A node is filled and emptied under random policies: nothing is ever given away
// twice, reading changes nothing, and what is taken back leaves no trace.
func TestNothingIsGivenAwayTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t)
		empty := n.Clone()
		p := drawPolicies(t)
		if rapid.Bool().Draw(t, "over") {
			p.Workload = p.Workload.Over([]*placement.Node{n})
		}
		type held struct {
			demand *placement.Demand
			choice placement.Choice
		}
		var all []held
		for range rapid.IntRange(1, 25).Draw(t, "demands") {
			d := drawDemand(t)
			before := n.Clone()
			choice, score, fits := p.Evaluate(n, d)
			scored, alsoFits := p.Score(n, d)
			order := p.Order(n, d)
			why := placement.Explain(n, d)
			require.Equal(t, before, n, "looking changes nothing")
			require.Equal(t, fits, alsoFits)
			require.InDelta(t, score, scored, 0)
			require.Equal(t, fits, placement.Fits(n, d), "whether it fits depends on no policy")
			checkOrder(t, n, order, choice)
			if !fits {
				if len(n.Cards) == 0 { // there is nothing to say of none
					continue
				}
				require.NotZero(t, why.Tainted+why.Model+why.Whole+why.InUse+why.Compute+why.Memory+why.Both+why.Slots+why.Host+why.Few+why.Partly, "there is a reason")
				continue
			}
			n.Take(d, choice)
			checkNode(t, n)
			checkChoice(t, before, d, choice)
			all = append(all, held{d, choice})
		}
		for len(all) > 0 {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "which ends")
			n.Release(all[i].demand, all[i].choice)
			all = slices.Delete(all, i, i+1)
			checkNode(t, n)
		}
		require.Equal(t, empty, n)
	})
}

func checkOrder(t *rapid.T, n *placement.Node, order []int, choice placement.Choice) {
	sorted := slices.Sorted(slices.Values(order))
	for i := range n.Cards {
		require.Equal(t, i, sorted[i], "each card once")
	}
	require.Len(t, order, len(n.Cards))
	if len(choice) > 0 {
		require.True(t, slices.ContainsFunc(choice, func(u placement.Use) bool { return u.Card == order[0] }), "a chosen card comes first")
	}
}

func checkNode(t *rapid.T, n *placement.Node) {
	for i := range n.Cards {
		c := &n.Cards[i]
		for _, left := range []int64{int64(c.Free.Compute), int64(c.Free.Offline), int64(c.Free.Memory), int64(c.Free.Slots)} {
			require.GreaterOrEqual(t, left, int64(0))
		}
		require.LessOrEqual(t, c.Free.Compute, c.Total.Compute)
	}
	require.GreaterOrEqual(t, int64(n.FreeCPU), int64(0))
	require.GreaterOrEqual(t, int64(n.FreeMemory), int64(0))
}

func checkChoice(t *rapid.T, before *placement.Node, d *placement.Demand, choice placement.Choice) {
	per := make([]map[int]bool, len(d.Parts))
	for i := range per {
		per[i] = map[int]bool{}
	}
	for i, u := range choice {
		require.False(t, per[u.Part][u.Card], "a part takes distinct cards")
		per[u.Part][u.Card] = true
		if i > 0 {
			require.GreaterOrEqual(t, u.Part, choice[i-1].Part, "in order of the parts")
		}
		c := &before.Cards[u.Card]
		require.False(t, c.Tainted)
		require.True(t, d.Parts[u.Part].Whole || !c.WholeOnly)
		require.True(t, len(d.Models) == 0 || slices.Contains(d.Models, c.Model))
		if d.Parts[u.Part].Whole {
			require.True(t, c.Empty())
		}
	}
	for i := range d.Parts {
		require.Len(t, per[i], d.Parts[i].Cards)
	}
}

// For a demand of one part it can be told by looking at each card.
func TestOnePartFitsWhereEnoughCardsHaveRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t)
		for range rapid.IntRange(0, 8).Draw(t, "held") {
			d := drawDemand(t)
			if choice, fits := placement.Default().Choose(n, d); fits {
				n.Take(d, choice)
			}
		}
		d := drawDemand(t)
		if len(d.Parts) == 0 {
			return
		}
		d.Parts = d.Parts[:1]
		part, room := &d.Parts[0], 0
		for i := range n.Cards {
			c := &n.Cards[i]
			a := &part.Amount
			has := c.Free.Compute >= a.Compute && c.Free.Offline >= a.Offline && c.Free.Memory >= a.Memory && c.Free.Slots >= 1 && !c.WholeOnly
			if part.Whole {
				has = c.Shares() == 0 && c.Free == c.Total
			}
			if has && !c.Tainted && (len(d.Models) == 0 || slices.Contains(d.Models, c.Model)) {
				room++
			}
		}
		require.Equal(t, room >= part.Cards && n.FreeCPU >= d.CPU && n.FreeMemory >= d.Memory, placement.Fits(n, d))
	})
}

func TestNormalizeKeepsWhatIsBest(t *testing.T) {
	t.Parallel()
	require.Empty(t, placement.Normalize(nil, 100))
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "scores")
		got := placement.Normalize(scores, 100)
		best := slices.Max(scores)
		for i := range scores {
			require.Equal(t, scores[i] == best, got[i] == 100, "only the best is at the top")
			require.GreaterOrEqual(t, got[i], int64(0))
			for j := range scores {
				if scores[i] < scores[j] {
					require.LessOrEqual(t, got[i], got[j])
				}
			}
		}
	})
	require.Equal(t, []int64{100, 75, 50, 0, 0}, placement.Normalize([]float64{0.9, 0.5, 0.1, 0.8 - 1e6, 0.1 - 2e6}, 100), "what is avoided does not make the others alike")
	require.Equal(t, []int64{100, 50, 0}, placement.Normalize([]float64{0.9 - 1e6, 0.5 - 1e6, 0.1 - 1e6}, 100), "all are avoided")
}
