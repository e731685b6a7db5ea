// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Shortage counts why cards do not take a demand. Each card is counted once, by
// the first that applies in the order of the fields. Shortages of several nodes
// are added up with Add; the zero value is that of no node.
type Shortage struct {
	// Want is the part of the demand that found no room; the first of them.
	Want Part
	// Nodes looked at, and Cards on them.
	Nodes, Cards int
	// Tainted cards; cards of another Model or that a selector refuses; cards
	// that are only given Whole, for a share; cards that are InUse, for a whole
	// card.
	Tainted, Model, Whole, InUse int
	// Cards that lack Compute (of the ledger that was asked), Memory, both, or a
	// slot.
	Compute, Memory, Both, Slots int
	// Host nodes have cards enough but lack CPU or memory of the host.
	Host int
	// Few nodes have cards that would do, but not as many as Want asks for at once.
	Few int
	// Partly are nodes with room for each part of the demand, but not for all at once.
	Partly int
	// Largest is the memory of the largest card.
	Largest card.MiB
}

// Explain counts why the demand does not fit on the node. For a demand that fits
// all counts but Nodes and Cards are zero.
func Explain(n *Node, d *Demand) Shortage { return explain(n, d) }

// Add counts another node in.
func (s *Shortage) Add(other Shortage) { s.merge(other) }

// String says it as in "no card has 40 % compute and 8 GiB free: 3 cards lack
// memory, 5 lack compute, 2 are tainted".
func (s Shortage) String() string { return s.sentence() }

func explain(n *Node, d *Demand) Shortage {
	s := Shortage{Nodes: 1, Cards: len(n.Cards)}
	if len(d.Parts) > 0 {
		s.Want = d.Parts[0]
	}
	for i := range n.Cards {
		s.Largest = max(s.Largest, n.Cards[i].Total.Memory)
	}
	if Fits(n, d) {
		return s
	}
	for p := range d.Parts {
		counts, fit := s, 0
		for c := range n.Cards {
			why := n.refusal(c, d, &d.Parts[p])
			if why == accepted {
				fit++
				continue
			}
			*counts.of(why)++
		}
		if fit < d.Parts[p].Cards {
			counts.Want = d.Parts[p]
			if fit > 0 {
				counts.Few = 1
			}
			return counts
		}
	}
	if !n.hostFits(d) {
		s.Host = 1
	} else {
		s.Partly = 1
	}
	return s
}

func (s *Shortage) of(why refusal) *int {
	switch why {
	case tainted:
		return &s.Tainted
	case otherModel:
		return &s.Model
	case wholeOnly:
		return &s.Whole
	case inUse:
		return &s.InUse
	case lacksCompute:
		return &s.Compute
	case lacksMemory:
		return &s.Memory
	case lacksBoth:
		return &s.Both
	case lacksSlot, accepted:
	}
	return &s.Slots
}

func (s *Shortage) merge(o Shortage) {
	if s.Nodes == 0 {
		s.Want = o.Want
	}
	s.Nodes += o.Nodes
	s.Cards += o.Cards
	for _, why := range []refusal{tainted, otherModel, wholeOnly, inUse, lacksCompute, lacksMemory, lacksBoth, lacksSlot} {
		*s.of(why) += *o.of(why)
	}
	s.Host += o.Host
	s.Few += o.Few
	s.Partly += o.Partly
	s.Largest = max(s.Largest, o.Largest)
}

func (s Shortage) sentence() string {
	var why []string
	// The first says of what the numbers are.
	what := ""
	count := func(n int, one, many string) {
		switch {
		case n == 0:
			return
		case n == 1:
			why = append(why, fmt.Sprintf("1 %s%s", what, one))
		case what != "":
			why = append(why, fmt.Sprintf("%d %ss %s", n, strings.TrimSpace(what), many))
		default:
			why = append(why, fmt.Sprintf("%d %s", n, many))
		}
		what = ""
	}
	what = "card "
	count(s.Memory, "lacks memory", "lack memory")
	count(s.Compute, "lacks compute", "lack compute")
	count(s.Both, "lacks both compute and memory", "lack both compute and memory")
	count(s.Slots, "has as many shares as it takes", "have as many shares as they take")
	count(s.InUse, "is in use", "are in use")
	count(s.Whole, "is given whole only", "are given whole only")
	count(s.Model, "is of another kind", "are of another kind")
	count(s.Tainted, "is tainted", "are tainted")
	what = "node "
	count(s.Few, "has such cards, but too few", "have such cards, but too few")
	count(s.Partly, "has room for each request alone", "have room for each request alone")
	count(s.Host, "lacks CPU or memory of the host", "lack CPU or memory of the host")
	said := s.head()
	if len(why) > 0 {
		said += ": " + strings.Join(why, ", ")
	}
	if s.Cards > 0 && !s.Want.Whole && s.Want.Amount.Memory > s.Largest {
		said += fmt.Sprintf("; the largest card has %s", memory(s.Largest))
	}
	return said
}

// head is what no card has, or no node where cards are not all that is missing.
func (s *Shortage) head() string {
	switch want := &s.Want; {
	case s.Host > 0, s.Partly > 0:
		return "no node has room for all that is asked for"
	case want.Whole && want.Cards > 1:
		return fmt.Sprintf("no node has %d unused cards", want.Cards)
	case want.Whole:
		return "no card is unused"
	case want.Cards > 1:
		return fmt.Sprintf("no node has %d cards %s", want.Cards, want.words("with"))
	default:
		return "no card " + want.words("has")
	}
}

// words is what the part takes of a card, which has it or is one with it.
func (p *Part) words(has string) string {
	var of []string
	switch {
	case p.Amount.Offline > 0:
		of = append(of, percent(p.Amount.Offline)+" % offline compute")
	case p.Amount.Compute > 0:
		of = append(of, percent(p.Amount.Compute)+" % compute")
	}
	if p.Amount.Memory > 0 {
		of = append(of, memory(p.Amount.Memory))
	}
	if len(of) == 0 {
		return has + " room for a share"
	}
	return has + " " + strings.Join(of, " and ") + " free"
}

func percent(m Milli) string { return strconv.FormatFloat(float64(m)/10, 'f', -1, 64) }

func memory(m card.MiB) string {
	if m%1024 == 0 {
		return fmt.Sprintf("%d GiB", m/1024)
	}
	return fmt.Sprintf("%d MiB", m)
}
