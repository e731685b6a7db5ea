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
	// Few nodes have cards that would do, but not as many as are asked for at once.
	Few int
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
	if Fits(n, d) {
		return s
	}
	for p := range d.Parts {
		var counts Shortage
		fit := 0
		for c := range n.Cards {
			why := n.refusal(c, d, &d.Parts[p])
			if why == accepted {
				fit++
				continue
			}
			*counts.of(why)++
		}
		if fit < d.Parts[p].Cards {
			counts.Nodes, counts.Cards, counts.Want = s.Nodes, s.Cards, d.Parts[p]
			if fit > 0 {
				counts.Few = 1
			}
			return counts
		}
	}
	if !n.hostFits(d) {
		s.Host = 1
	} else {
		s.Few = 1
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
}

func (s Shortage) sentence() string {
	head := "no card has " + s.Want.words()
	if s.Want.Cards > 1 {
		head = fmt.Sprintf("no node has %d cards with %s", s.Want.Cards, s.Want.words())
	}
	var why []string
	// The first says of what the numbers are.
	card, all := "card ", "cards "
	count := func(n int, one, many, what string) {
		switch {
		case n == 0:
			return
		case n == 1:
			why = append(why, fmt.Sprintf("1 %s%s %s", card, one, what))
		default:
			why = append(why, fmt.Sprintf("%d %s%s %s", n, all, many, what))
		}
		card, all = "", ""
	}
	count(s.Memory, "lacks", "lack", "memory")
	count(s.Compute, "lacks", "lack", "compute")
	count(s.Both, "lacks", "lack", "both compute and memory")
	count(s.Slots, "has", "have", "as many shares as it takes")
	count(s.InUse, "is", "are", "in use")
	count(s.Whole, "is", "are", "given whole only")
	count(s.Model, "is", "are", "of another kind")
	count(s.Tainted, "is", "are", "tainted")
	card, all = "node ", "nodes "
	count(s.Few, "has", "have", "some, but not enough at once")
	card, all = "node ", "nodes "
	count(s.Host, "lacks", "lack", "CPU or memory of the host")
	if len(why) == 0 {
		return head
	}
	return head + ": " + strings.Join(why, ", ")
}

func (p *Part) words() string {
	if p.Whole {
		return "nobody on it"
	}
	compute := fmt.Sprintf("%s %% compute", percent(p.Amount.Compute))
	if p.Amount.Offline > 0 {
		compute = fmt.Sprintf("%s %% offline compute", percent(p.Amount.Offline))
	}
	if p.Amount.Memory == 0 {
		return compute + " free"
	}
	return fmt.Sprintf("%s and %s free", compute, memory(p.Amount.Memory))
}

func percent(m Milli) string { return strconv.FormatFloat(float64(m)/10, 'f', -1, 64) }

func memory(m card.MiB) string {
	if m%1024 == 0 {
		return fmt.Sprintf("%d GiB", m/1024)
	}
	return fmt.Sprintf("%d MiB", m)
}
