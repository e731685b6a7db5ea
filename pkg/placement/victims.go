// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/tranche-dra/tranche/pkg/share"
)

// Holder is somebody who may have to give way: a pod, with what it has of the
// node's cards.
type Holder struct {
	Held []Held
	// Offline work goes before all other.
	Offline bool
	// Ending work goes anyway.
	Ending   bool
	Priority int32
	// Since says when it began, in any unit: who has run longest stays.
	Since int64
	// Budgets are the disruption budgets that it counts in: indexes into those given
	// to Victims.
	Budgets []int
}

// Held is what a holder has of one card.
type Held struct {
	Card   int
	Amount Amount
	Class  share.Class
}

// Rank orders holders by how much it matters that they stay: less than 0 where a
// should go before b. Those that end go before those that do not, offline work
// before other work, lower priority before higher.
func Rank(a, b *Holder) int {
	certain := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(certain(a.Ending), certain(b.Ending)),
		cmp.Compare(certain(a.Offline), certain(b.Offline)), cmp.Compare(a.Priority, b.Priority))
}

// Victims picks who has to give way so that the demand fits. The node is one on
// which all holders are already thought of as gone; budgets says how many more each
// disruption budget bears. False where the demand does not fit even then.
//
// The fewest go against their budget. Among those choices the one is taken whose
// most important victim is the least important by Rank, then the next, and so on: a
// victim of low rank goes rather than one of high rank, however many of them it
// takes, and of one rank as few as possible go. Victims are indexes into holders,
// the most important first.
func Victims(n *Node, d *Demand, holders []Holder, budgets []int32) ([]int, bool) {
	if !Fits(n, d) {
		return nil, false
	}
	c := &cull{
		node: n.Clone(), demand: d, holders: holders, order: make([]int, len(holders)),
		budgets: slices.Clone(budgets), steps: cullSteps,
	}
	for i := range holders {
		c.order[i] = i
	}
	slices.SortStableFunc(c.order, func(i, j int) int {
		return cmp.Or(Rank(&holders[j], &holders[i]), cmp.Compare(holders[i].Since, holders[j].Since))
	})
	usable := c.usable()
	c.choose(usable, nil, d.cards())
	if !c.found { // none of the sets that there was time for has room
		c.look(usable)
	}
	return c.best, c.found
}

func (d *Demand) cards() int {
	sum := 0
	for i := range d.Parts {
		sum += d.Parts[i].Cards
	}
	return sum
}

// cullSteps bounds how often it is tried whether the demand fits. What is found
// within is never more than what has to go for the cards that it is on. Each set
// of cards that is looked at takes one step at least.
const cullSteps = 20000

// cull is one search for victims.
type cull struct {
	node    *Node
	demand  *Demand
	holders []Holder
	// order is that of holders, the most important first; among is those of them that
	// are on the cards that are looked at.
	order, among []int
	// budgets as the current victims leave them, and how many go against theirs.
	budgets  []int32
	breaches int
	victims  []int
	steps    int

	found        bool
	best         []int
	bestBreaches int
}

// usable cards are those that take some part of the demand when nobody is on them.
func (c *cull) usable() []int {
	var of []int
	for i := range c.node.Cards {
		for p := range c.demand.Parts {
			if c.node.refusal(i, c.demand, &c.demand.Parts[p]) == accepted {
				of = append(of, i)
				break
			}
		}
	}
	return of
}

// choose looks at every set of cards that is as large as the demand can use: who
// is on none of the demand's cards does not have to go.
func (c *cull) choose(cards, chosen []int, more int) {
	switch {
	case c.steps <= 0:
		return
	case more == 0 || len(cards) == 0:
		c.look(chosen)
		return
	case len(cards) > more:
		defer c.choose(cards[1:], chosen, more)
	}
	c.choose(cards[1:], append(slices.Clip(chosen), cards[0]), more-1)
}

// look searches for victims on a set of cards. No other cards are taken.
func (c *cull) look(cards []int) {
	closed := c.node.Clone()
	for i := range closed.Cards {
		closed.Cards[i].Tainted = closed.Cards[i].Tainted || !slices.Contains(cards, i)
	}
	open := c.node
	c.node = closed
	defer func() { c.node = open }()
	if !c.fits() {
		return
	}
	c.among = c.among[:0]
	for _, i := range c.order {
		if slices.ContainsFunc(c.holders[i].Held, func(h Held) bool { return slices.Contains(cards, h.Card) }) {
			c.among = append(c.among, i)
		}
	}
	c.decide(0)
}

func (c *cull) fits() bool {
	c.steps--
	return Fits(c.node, c.demand)
}

// decide lets the holders from that one on stay or go, each in both ways where that
// may help. The demand fits as long as all of them go.
func (c *cull) decide(at int) {
	if c.found && (c.steps <= 0 || !c.better()) {
		return
	}
	if at == len(c.among) {
		c.found, c.best, c.bestBreaches = true, slices.Clone(c.victims), c.breaches
		return
	}
	i := c.among[at]
	h := &c.holders[i]
	if !c.likeVictim(h) {
		c.stay(h, 1)
		if c.fits() {
			c.decide(at + 1)
		}
		c.stay(h, -1)
	}
	breach := c.disrupt(h, -1)
	c.breaches += breach
	c.victims = append(c.victims, i)
	c.decide(at + 1)
	c.victims = c.victims[:len(c.victims)-1]
	c.breaches -= breach
	c.disrupt(h, 1)
}

// likeVictim tells whether a victim is in everything like the holder, which then
// may as well go too: that the first goes and the second stays is tried the other
// way round.
func (c *cull) likeVictim(h *Holder) bool {
	return slices.ContainsFunc(c.victims, func(v int) bool {
		o := &c.holders[v]
		return Rank(o, h) == 0 && slices.Equal(o.Budgets, h.Budgets) && slices.Equal(o.Held, h.Held)
	})
}

// stay books what the holder has, or takes it back. On a card that others wait for
// there may then be less than nothing free.
func (c *cull) stay(h *Holder, by int32) {
	for _, held := range h.Held {
		to := &c.node.Cards[held.Card]
		*to.counter(held.Class) += by
		if by > 0 {
			to.Free.sub(&held.Amount)
		} else {
			to.Free.add(&held.Amount)
		}
	}
}

// disrupt counts the holder in its budgets, and tells whether one of them is
// overdrawn.
func (c *cull) disrupt(h *Holder, by int32) (breach int) {
	for _, b := range h.Budgets {
		if c.budgets[b] += by; c.budgets[b] < 0 {
			breach = 1
		}
	}
	return breach
}

// better tells whether the victims, with nobody added, are a better choice than the
// best so far.
func (c *cull) better() bool {
	if c.breaches != c.bestBreaches {
		return c.breaches < c.bestBreaches
	}
	return CompareVictims(c.holders, c.victims, c.best) < 0
}

// CompareVictims says which of two choices, each with the most important first, is
// better: less than 0 where a is.
func CompareVictims(holders []Holder, a, b []int) int {
	return slices.CompareFunc(a, b, func(i, j int) int { return Rank(&holders[i], &holders[j]) })
}
