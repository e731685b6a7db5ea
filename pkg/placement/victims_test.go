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

// vacant is a node of that many cards of 24 GiB with nobody on them.
func vacant(cards int) *placement.Node {
	n := &placement.Node{Name: "node"}
	for range cards {
		all := placement.Amount{Compute: placement.WholeCompute, Offline: placement.WholeCompute, Memory: 24 << 10, Slots: 16}
		n.Cards = append(n.Cards, placement.Card{Total: all, Free: all})
	}
	return n
}

func held(card int, compute placement.Milli, gib card.MiB) placement.Held {
	return placement.Held{Card: card, Amount: placement.Amount{Compute: compute, Memory: gib << 10, Slots: 1}}
}

func holds(of ...placement.Held) placement.Holder { return placement.Holder{Held: of} }

type option func(*placement.Holder)

func (o option) to(h placement.Holder) placement.Holder { o(&h); return h }

func priority(p int32) option     { return func(h *placement.Holder) { h.Priority = p } }
func budget(b ...int) option      { return func(h *placement.Holder) { h.Budgets = b } }
func offline(h *placement.Holder) { h.Offline = true }
func ending(h *placement.Holder)  { h.Ending = true }

func needs(compute placement.Milli, gib card.MiB, cards int) *placement.Demand {
	return &placement.Demand{Parts: []placement.Part{{Cards: cards, Amount: placement.Amount{Compute: compute, Memory: gib << 10}}}}
}

func wholes(cards int) *placement.Demand {
	return &placement.Demand{Parts: []placement.Part{{Cards: cards, Whole: true}}}
}

func TestVictims(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cards   int
		demand  *placement.Demand
		holders []placement.Holder
		budgets []int32
		want    []int
		refused bool
	}{
		"nobody where there is room": {1, needs(200, 8, 1), []placement.Holder{holds(held(0, 100, 16))}, nil, nil, false},
		"one large rather than two small ones": {
			1, needs(200, 10, 1), []placement.Holder{holds(held(0, 100, 4)), holds(held(0, 100, 12)), holds(held(0, 100, 4))}, nil, []int{1}, false,
		},
		"one large, though it began first": {
			1, needs(200, 16, 1), []placement.Holder{holds(held(0, 100, 16)), holds(held(0, 100, 4)), holds(held(0, 100, 4))}, nil, []int{0}, false,
		},
		"offline work before other work of lower priority": {
			1, needs(200, 8, 1), []placement.Holder{priority(-5).to(holds(held(0, 100, 10))), option(offline).to(priority(5).to(holds(held(0, 100, 10))))}, nil, []int{1}, false,
		},
		"two of offline work before one of other work": {
			1, needs(200, 12, 1), []placement.Holder{
				holds(held(0, 100, 12)), option(offline).to(holds(held(0, 100, 6))), option(offline).to(holds(held(0, 100, 6))),
			}, nil, []int{1, 2}, false,
		},
		"lower priority before higher": {
			1, needs(200, 8, 1), []placement.Holder{priority(5).to(holds(held(0, 100, 10))), priority(3).to(holds(held(0, 100, 10)))}, nil, []int{1}, false,
		},
		"the card on which the fewest go": {
			2, needs(200, 20, 1), []placement.Holder{holds(held(0, 100, 10)), holds(held(0, 100, 10)), holds(held(1, 100, 20))}, nil, []int{2}, false,
		},
		"who ends anyway": {
			2, needs(200, 20, 1), []placement.Holder{option(ending).to(priority(9).to(holds(held(0, 100, 20)))), holds(held(1, 100, 20))}, nil, []int{0}, false,
		},
		"nobody whose budget is used up, where others can go": {
			1, needs(200, 10, 1), []placement.Holder{budget(0).to(holds(held(0, 100, 12))), priority(5).to(holds(held(0, 100, 12)))}, []int32{0}, []int{1}, false,
		},
		"somebody against a budget, where nothing else helps": {
			1, needs(200, 20, 1), []placement.Holder{budget(0).to(holds(held(0, 100, 12))), holds(held(0, 100, 12))}, []int32{0}, []int{0, 1}, false,
		},
		"one of each budget rather than two of one": {
			1, needs(200, 12, 1), []placement.Holder{
				budget(0).to(holds(held(0, 100, 6))), budget(0).to(holds(held(0, 100, 6))), budget(1).to(holds(held(0, 100, 6))), holds(held(0, 100, 6)),
			}, []int32{1, 1}, []int{2, 3}, false,
		},
		"who is on two cards, for two whole ones": {
			3, wholes(2), []placement.Holder{holds(held(0, 100, 1)), holds(held(1, 100, 1), held(2, 100, 1))}, nil, []int{1}, false,
		},
		"nobody where it would not help": {1, needs(200, 30, 1), []placement.Holder{holds(held(0, 100, 10))}, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range tc.holders {
				tc.holders[i].Since = int64(i)
			}
			got, ok := placement.Victims(vacant(tc.cards), tc.demand, tc.holders, tc.budgets)
			require.Equal(t, !tc.refused, ok)
			require.Equal(t, tc.want, got)
		})
	}
}

// drawHolders puts shares on the node as far as there is room, and leaves it as it
// was.
func drawHolders(t *rapid.T, n *placement.Node) []placement.Holder {
	room := n.Clone()
	var all []placement.Holder
	for range rapid.IntRange(0, 9).Draw(t, "holders") {
		d := needs(placement.Milli(rapid.IntRange(0, 5).Draw(t, "compute")*100), card.MiB(rapid.IntRange(1, 12).Draw(t, "memory")), rapid.IntRange(1, 2).Draw(t, "cards"))
		choice, ok := placement.Default().Choose(room, d)
		if !ok {
			continue
		}
		room.Take(d, choice)
		h := placement.Holder{
			Offline: rapid.Bool().Draw(t, "offline"), Priority: rapid.Int32Range(0, 2).Draw(t, "priority"), Since: int64(len(all)),
		}
		if rapid.Bool().Draw(t, "protected") {
			h.Budgets = []int{rapid.IntRange(0, 1).Draw(t, "budget")}
		}
		for _, u := range choice {
			a := d.Parts[0].Amount
			a.Slots = 1
			h.Held = append(h.Held, placement.Held{Card: u.Card, Amount: a, Class: share.NoClass})
		}
		all = append(all, h)
	}
	return all
}

// without is the node with those that stay, and how many go against their budget.
func without(n *placement.Node, holders []placement.Holder, budgets []int32, victims []int) (*placement.Node, int) {
	after, left, breaches := n.Clone(), slices.Clone(budgets), 0
	for i, h := range holders {
		if slices.Contains(victims, i) {
			over := false
			for _, b := range h.Budgets {
				left[b]--
				over = over || left[b] < 0
			}
			if over {
				breaches++
			}
			continue
		}
		for _, held := range h.Held {
			c := &after.Cards[held.Card]
			c.Free.Compute -= held.Amount.Compute
			c.Free.Memory -= held.Amount.Memory
			c.Free.Slots--
			c.Unclassed++
		}
	}
	return after, breaches
}

// No other choice of victims that makes room is better, of all there are.
func TestVictimsOnManyCardsAreFoundInBoundedSteps(t *testing.T) {
	t.Parallel()
	cards := make([]placement.Card, 24)
	holders := make([]placement.Holder, len(cards))
	for i := range cards {
		cards[i], holders[i] = emptyCard(), holds(held(i, 100, 24))
	}
	// Of the 2.5 million sets of 13 cards those with room come last.
	upper := placement.Part{Cards: 12, Whole: true, Accepts: func(_ *placement.Node, c int) bool { return c >= 12 }}
	victims, found := placement.Victims(node(cards...), &placement.Demand{Parts: []placement.Part{upper, {Cards: 1, Whole: true}}}, holders, nil)
	require.True(t, found)
	require.Len(t, victims, 13, "as many as there are cards to take")
	for _, v := range []int{12, 17, 23} {
		require.Contains(t, victims, v)
	}
}

func TestVictimsAreTheBestChoice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := vacant(rapid.IntRange(1, 3).Draw(t, "cards"))
		holders := drawHolders(t, n)
		budgets := []int32{rapid.Int32Range(0, 2).Draw(t, "first budget"), rapid.Int32Range(0, 2).Draw(t, "second budget")}
		d := needs(placement.Milli(rapid.IntRange(0, 10).Draw(t, "asked compute")*100), card.MiB(rapid.IntRange(1, 24).Draw(t, "asked memory")), rapid.IntRange(1, 2).Draw(t, "asked cards"))
		d.Parts[0].Whole = rapid.IntRange(0, 4).Draw(t, "whole") == 0
		got, ok := placement.Victims(n, d, holders, budgets)
		require.Equal(t, placement.Fits(n, d), ok)
		if !ok {
			return
		}
		after, breaches := without(n, holders, budgets, got)
		require.True(t, placement.Fits(after, d), "there is room without them")
		for set := range 1 << len(holders) {
			var other []int
			for i := range holders {
				if set&(1<<i) != 0 {
					other = append(other, i)
				}
			}
			after, theirs := without(n, holders, budgets, other)
			if !placement.Fits(after, d) || theirs > breaches {
				continue
			}
			slices.SortStableFunc(other, func(i, j int) int { return placement.Rank(&holders[j], &holders[i]) })
			require.False(t, theirs < breaches || placement.CompareVictims(holders, other, got) < 0, "%v is better than %v", other, got)
		}
	})
}
