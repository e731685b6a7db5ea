// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Milli is compute in thousandths of one card: traces count in these, claims in
// percent.
type Milli int32

// WholeCompute is all the compute of one card.
const WholeCompute Milli = 1000

// FromPercent converts what claims count in.
func FromPercent(p card.Percent) Milli { return Milli(p) * 10 } //nolint:gosec // at most 100

// MilliCPU is CPU time in thousandths of a core, as Kubernetes counts it.
type MilliCPU int64

// Amount is what a card offers, has free, or gives to one share. A card whose
// memory is not known has 0 of it, and then only demands without memory fit.
type Amount struct {
	// Compute is of the online ledger, Offline of the offline one.
	Compute, Offline Milli
	Memory           card.MiB
	// Slots is how many shares; one share takes one.
	Slots int32
}

func (a *Amount) add(b *Amount) {
	a.Compute += b.Compute
	a.Offline += b.Offline
	a.Memory += b.Memory
	a.Slots += b.Slots
}

func (a *Amount) sub(b *Amount) {
	a.Compute -= b.Compute
	a.Offline -= b.Offline
	a.Memory -= b.Memory
	a.Slots -= b.Slots
}

// Card is one card as placement sees it. The zero value has nothing to give.
type Card struct {
	// Name under which the card is published.
	Name string
	// Model is the product's name; empty where it is not known.
	Model string
	// Free is never negative: a card on which more is held than it has, which
	// happens when it shrinks under its shares, has nothing free.
	Total, Free Amount
	// Shares on the card by class; a whole card that is given away counts as one.
	Online, OfflineShares, Unclassed int32
	// Tainted cards take no new shares.
	Tainted bool
	// WholeOnly cards are never shared: other vendors' cards, cards whose memory
	// is not known.
	WholeOnly bool
}

// Shares is how many shares are on the card.
func (c *Card) Shares() int { return int(c.Online + c.OfflineShares + c.Unclassed) }

// Empty tells whether nobody is on the card.
func (c *Card) Empty() bool { return c.Shares() == 0 && c.Free == c.Total }

// Node is one node as placement sees it.
type Node struct {
	Name string
	// CPU and Memory of the host. Where they are not known (the scheduler has
	// other plug-ins for them) both totals are 0, and nothing is asked of them.
	CPU, FreeCPU       MilliCPU
	Memory, FreeMemory card.MiB
	Cards              []Card
}

// Clone is an independent copy, to try on it what would be if.
func (n *Node) Clone() *Node {
	c := *n
	c.Cards = slices.Clone(n.Cards)
	return &c
}

// Part of a demand: a number of distinct cards of one node with the same amount
// on each.
type Part struct {
	// Cards is how many, at least 1.
	Cards int
	// Amount on each card. For whole cards it is ignored: all of it is taken.
	Amount Amount
	// Whole cards: nobody may be on them, and nobody comes beside.
	Whole bool
	Class share.Class
	// Accepts, if not nil, says whether the card's attributes are right: the
	// selectors of a claim. It is called for cards that fit otherwise, with the
	// node they are on.
	Accepts func(n *Node, card int) bool
}

// Demand is everything that one pod asks for. All parts go on one node; two
// parts may be on one card where its amounts cover both.
type Demand struct {
	Parts []Part
	// CPU and Memory of the host, counted only where the node's totals are known.
	CPU    MilliCPU
	Memory card.MiB
	// Models lists which models will do; none means that all will.
	Models []string
}

// Use is one card that a choice takes for one part of the demand.
type Use struct {
	// Part and Card are indexes into Demand.Parts and Node.Cards.
	Part, Card int
}

// Choice is the cards for a demand, in order of its parts; a part of several
// cards has as many entries.
type Choice []Use

// Take books the demand onto the chosen cards. The choice must be one that the
// node has room for: Fits, Choose and Order promise that.
func (n *Node) Take(d *Demand, choice Choice) {
	n.FreeCPU -= d.CPU
	n.FreeMemory -= d.Memory
	for _, u := range choice {
		n.take(&d.Parts[u.Part], u.Card)
	}
}

// Release undoes Take.
func (n *Node) Release(d *Demand, choice Choice) {
	n.FreeCPU += d.CPU
	n.FreeMemory += d.Memory
	for _, u := range choice {
		n.release(&d.Parts[u.Part], u.Card)
	}
}

func (n *Node) take(part *Part, index int) {
	c := &n.Cards[index]
	amount := part.takes(c)
	c.Free.sub(&amount)
	*c.counter(part.Class)++
}

func (n *Node) release(part *Part, index int) {
	c := &n.Cards[index]
	amount := part.takes(c)
	c.Free.add(&amount)
	*c.counter(part.Class)--
}

func (c *Card) counter(class share.Class) *int32 {
	switch class {
	case share.Online:
		return &c.Online
	case share.Offline:
		return &c.OfflineShares
	case share.NoClass:
	}
	return &c.Unclassed
}

// takes is what one card gives to the part. A whole card gives all it has, its
// offline compute and slots too: nobody comes beside.
func (p *Part) takes(c *Card) Amount {
	if p.Whole {
		return c.Total
	}
	a := p.Amount
	a.Slots = 1
	return a
}

// Compute is how much of the online ledger the demand asks for, over all its
// cards.
func (d *Demand) Compute() int64 {
	var sum int64
	for i := range d.Parts {
		sum += int64(d.Parts[i].Cards) * int64(d.Parts[i].compute())
	}
	return sum
}
