// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
	"sync"

	"github.com/tranche-dra/tranche/pkg/share"
)

// avoided weighs a card with work of the class to avoid: more than any
// difference in cost, so that it is taken only where there is no other.
const avoided = 1e6

// ranked is a card that a part fits on, and what taking it costs.
type ranked struct {
	card int
	cost float64
}

func (n *Node) hostFits(d *Demand) bool {
	return (n.CPU == 0 || n.FreeCPU >= d.CPU) && (n.Memory == 0 || n.FreeMemory >= d.Memory)
}

// refusal is why a card does not take a part.
type refusal int

const (
	accepted refusal = iota
	tainted
	otherModel
	wholeOnly
	inUse
	lacksCompute
	lacksMemory
	lacksBoth
	lacksSlot
)

func (n *Node) refusal(index int, d *Demand, part *Part) refusal {
	c := &n.Cards[index]
	switch {
	case c.Tainted:
		return tainted
	case len(d.Models) > 0 && !slices.Contains(d.Models, c.Model):
		return otherModel
	case c.WholeOnly && !part.Whole:
		return wholeOnly
	}
	if why := c.lacks(part); why != accepted {
		return why
	}
	if part.Accepts != nil && !part.Accepts(n, index) {
		return otherModel
	}
	return accepted
}

func (c *Card) lacks(part *Part) refusal {
	if part.Whole {
		if !c.Empty() {
			return inUse
		}
		return accepted
	}
	compute := c.Free.Compute < part.Amount.Compute || c.Free.Offline < part.Amount.Offline
	memory := c.Free.Memory < part.Amount.Memory
	switch {
	case compute && memory:
		return lacksBoth
	case compute:
		return lacksCompute
	case memory:
		return lacksMemory
	case c.Free.Slots < 1:
		return lacksSlot
	}
	return accepted
}

// rank appends the cards that take the part, the cheapest first. It changes n
// while it looks, and leaves it as it was.
func (p Policies) rank(out []ranked, n *Node, d *Demand, part *Part) []ranked {
	for i := range n.Cards {
		if n.refusal(i, d, part) != accepted {
			continue
		}
		cost, known := 0.0, false
		// Cards that are alike cost the same; mostly many are.
		for _, r := range out {
			if n.Cards[r.card].alike(&n.Cards[i]) {
				cost, known = r.cost, true
				break
			}
		}
		if !known {
			cost = p.cost(n, i, part)
		}
		out = append(out, ranked{i, cost})
	}
	slices.SortStableFunc(out, func(a, b ranked) int { return cmp.Compare(a.cost, b.cost) })
	return out
}

func (c *Card) alike(o *Card) bool {
	return c.Free == o.Free && c.Total == o.Total && c.Online == o.Online && c.OfflineShares == o.OfflineShares && c.Model == o.Model
}

// cost of taking the card for the part: lower is better.
func (p Policies) cost(n *Node, index int, part *Part) float64 {
	c := &n.Cards[index]
	if part.Whole {
		return 0 // Empty cards are alike.
	}
	policy, cost := p.Card, 0.0
	switch part.Class {
	case share.Online:
		policy = Spread
		if c.OfflineShares > 0 {
			cost = avoided
		}
	case share.Offline:
		policy = Binpack
		if c.Online > 0 {
			cost = avoided
		}
	case share.NoClass:
	}
	switch {
	case policy == Spread:
		cost -= c.left(part)
	case policy == Fragmentation && p.Workload.known():
		n.take(part, index)
		cost += p.Workload.stranded(n)
		n.release(part, index)
	default:
		cost += c.left(part)
	}
	return cost
}

// left is how much of the card is free, 0 to 2: compute of the part's ledger and
// memory, each as a fraction of all.
func (c *Card) left(part *Part) float64 {
	compute := fraction(c.Free.Compute, c.Total.Compute)
	if part.Amount.Offline > 0 {
		compute = fraction(c.Free.Offline, c.Total.Offline)
	}
	return compute + fraction(c.Free.Memory, c.Total.Memory)
}

func fraction[T ~int32 | ~int64](of, total T) float64 {
	if total <= 0 {
		return 0
	}
	return float64(of) / float64(total)
}

func (p Policies) evaluate(n *Node, d *Demand, wantChoice bool) (Choice, float64, bool) {
	if !n.hostFits(d) {
		return nil, 0, false
	}
	t := newTrial(n)
	defer t.end()
	if !t.search(p, d) {
		return nil, 0, false
	}
	score := p.nodeScore(n, &t.node, d, t.choice)
	if !wantChoice {
		return nil, score, true
	}
	choice := slices.Clone(t.choice)
	slices.SortStableFunc(choice, func(a, b Use) int { return cmp.Compare(a.Part, b.Part) })
	return choice, score, true
}

// trial is a copy of a node on which a choice is tried. Scoring makes one for
// each node, so they are used again.
type trial struct {
	node   Node
	choice Choice
	steps  int
}

var trials = sync.Pool{New: func() any { return new(trial) }}

func newTrial(n *Node) *trial {
	t, ok := trials.Get().(*trial)
	if !ok {
		t = new(trial)
	}
	cards := t.node.Cards[:0]
	cards = append(cards, n.Cards...)
	t.node, t.choice, t.steps = *n, t.choice[:0], searchSteps
	t.node.Cards = cards
	return t
}

func (t *trial) end() { trials.Put(t) }

// search takes cards for all parts of the demand.
func (t *trial) search(p Policies, d *Demand) bool {
	t.node.FreeCPU -= d.CPU
	t.node.FreeMemory -= d.Memory
	if len(d.Parts) == 1 {
		return t.place(p, d, []int{0})
	}
	return t.place(p, d, hardestFirst(d.Parts))
}

// searchSteps bounds how often a demand of many different parts is tried in
// another way. What is not found within is taken not to fit: the pod is tried
// again when something changes.
const searchSteps = 2000

// hardestFirst is the order in which parts are placed: whole cards, then large
// shares, since what is large has fewer places to go.
func hardestFirst(parts []Part) []int {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &parts[a], &parts[b]
		if x.Whole != y.Whole {
			if x.Whole {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(y.Amount.Compute+y.Amount.Offline, x.Amount.Compute+x.Amount.Offline),
			cmp.Compare(y.Amount.Memory, x.Amount.Memory), cmp.Compare(y.Cards, x.Cards))
	})
	return order
}

// place finds cards for the parts listed in order, one after the other, going
// back where a choice leaves a later part without room.
func (t *trial) place(p Policies, d *Demand, order []int) bool {
	if len(order) == 0 {
		return true
	}
	index, rest := order[0], order[1:]
	part := &d.Parts[index]
	var room [16]ranked
	candidates := p.rank(room[:0], &t.node, d, part)
	// A part of several cards takes neighbours in the ranking: the first ones,
	// then those from the second on, and so forth.
	for first := 0; first+part.Cards <= len(candidates); first++ {
		if t.steps--; t.steps < 0 {
			return false
		}
		taken := candidates[first : first+part.Cards]
		for _, r := range taken {
			t.node.take(part, r.card)
			t.choice = append(t.choice, Use{index, r.card})
		}
		if t.place(p, d, rest) {
			return true
		}
		for _, r := range taken {
			t.node.release(part, r.card)
		}
		t.choice = t.choice[:len(t.choice)-len(taken)]
	}
	return false
}

func (p Policies) nodeScore(before, after *Node, d *Demand, choice Choice) float64 {
	score := 0.0
	for _, u := range choice {
		c := &before.Cards[u.Card]
		switch d.Parts[u.Part].Class {
		case share.Online:
			if c.OfflineShares > 0 {
				score -= avoided
			}
		case share.Offline:
			if c.Online > 0 {
				score -= avoided
			}
		case share.NoClass:
		}
	}
	switch {
	case p.Node == Spread:
		return score - after.used()
	case p.Node == Fragmentation && p.Workload.known():
		return score - (p.Workload.stranded(after) - p.Workload.stranded(before)) - fillWeight*after.free()
	}
	return score + after.used()
}

// used is the part of the node's cards that is taken, 0 to 1: for each card the
// scarcer of its compute and its memory.
func (n *Node) used() float64 {
	if len(n.Cards) == 0 {
		return 0
	}
	sum := 0.0
	for i := range n.Cards {
		c := &n.Cards[i]
		sum += 1 - min(unused(c.Free.Compute, c.Total.Compute), unused(c.Free.Offline, c.Total.Offline), unused(c.Free.Memory, c.Total.Memory))
	}
	return sum / float64(len(n.Cards))
}

// unused is 1 where there is nothing to use: cards that go as a whole have no
// offline compute, those of some traces no memory.
func unused[T ~int32 | ~int64](free, total T) float64 {
	if total <= 0 {
		return 1
	}
	return fraction(free, total)
}

func (p Policies) order(n *Node, d *Demand) []int {
	out := make([]int, 0, len(n.Cards))
	seen := make([]bool, len(n.Cards))
	put := func(c int) {
		if !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	t := newTrial(n)
	defer t.end()
	if t.search(p, d) {
		for _, u := range t.choice {
			put(u.Card)
		}
	}
	t.node.FreeCPU, t.node.FreeMemory = n.FreeCPU, n.FreeMemory
	copy(t.node.Cards, n.Cards)
	for i := range d.Parts {
		for _, r := range p.rank(nil, &t.node, d, &d.Parts[i]) {
			put(r.card)
		}
	}
	for c := range n.Cards {
		put(c)
	}
	return out
}

func normalize(scores []float64, top int64) []int64 {
	out := make([]int64, len(scores))
	if len(scores) == 0 {
		return out
	}
	best, worst, floor := slices.Max(scores), slices.Min(scores), 0.0
	if worst < best-avoided/2 {
		// Next to nodes that are to be avoided all others would be alike: they get
		// the upper half for themselves.
		worst, floor = best, 0.5
		for _, s := range scores {
			if s >= best-avoided/2 {
				worst = min(worst, s)
			}
		}
	}
	for i, s := range scores {
		switch {
		case s == best:
			out[i] = top
		case s >= worst:
			out[i] = min(int64(float64(top)*(floor+(1-floor)*(s-worst)/(best-worst))), top-1)
		}
	}
	return out
}
