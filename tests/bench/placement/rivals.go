// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/replay"
	"github.com/tranche-dra/tranche/pkg/trace"
)

// Policies of others, as the paper describes them and its simulator has them, to
// compare with. All cut their scores to whole numbers from 0 to 100, which
// matters: equal nodes are taken in one fixed order, and so are filled up one
// after the other.

// Largest node of the trace, to which others' scores are normalised.
const (
	largestCPU     = 128000.0
	largestCompute = 8000.0
)

// rival scores the node for the demand with the part of it taken on the card.
// Scores are compared after cutting off the fraction.
type rival struct {
	score func(n *placement.Node, d *placement.Demand) float64
	// pick of the cards that a share fits on, nil for the one with least free.
	pick func(n *placement.Node, part *placement.Part, fitting []int) int
}

func (r rival) Score(n *placement.Node, d *placement.Demand) (float64, bool) {
	if !placement.Fits(n, d) {
		return 0, false
	}
	return math.Floor(r.score(n, d)), true
}

func (r rival) Choose(n *placement.Node, d *placement.Demand) (placement.Choice, bool) {
	if len(d.Parts) == 0 {
		return nil, true
	}
	part := &d.Parts[0]
	if part.Whole || part.Cards > 1 || r.pick == nil {
		return placement.Policies{Card: placement.Binpack}.Choose(n, d)
	}
	return placement.Choice{{Part: 0, Card: r.pick(n, part, fitting(n, part))}}, true
}

func fitting(n *placement.Node, part *placement.Part) []int {
	var out []int
	for c := range n.Cards {
		if n.Cards[c].Free.Compute >= part.Amount.Compute {
			out = append(out, c)
		}
	}
	return out
}

func free(n *placement.Node) float64 {
	sum := 0.0
	for c := range n.Cards {
		sum += float64(n.Cards[c].Free.Compute)
	}
	return sum
}

// random takes any node that fits, and any card.
func random(_ *trace.Trace, seed uint64) replay.Placer {
	chance := rand.New(rand.NewPCG(seed, 1))
	return rival{
		score: func(*placement.Node, *placement.Demand) float64 { return chance.Float64() * (1 << 40) },
		pick: func(_ *placement.Node, _ *placement.Part, fitting []int) int {
			return fitting[chance.IntN(len(fitting))]
		},
	}
}

// bestFit takes the node that is left with least, CPU and compute weighing the
// same.
func bestFit(*trace.Trace, uint64) replay.Placer {
	return rival{score: func(n *placement.Node, d *placement.Demand) float64 {
		cpu := float64(n.FreeCPU-d.CPU) / largestCPU
		compute := (free(n) - float64(d.Compute())) / largestCompute
		return 100 * (1 - (cpu+compute)/2)
	}}
}

// dotProduct takes the node where what is free has least in common with what is
// asked.
func dotProduct(*trace.Trace, uint64) replay.Placer {
	return rival{score: func(n *placement.Node, d *placement.Demand) float64 {
		cpu := float64(n.FreeCPU) / largestCPU * float64(d.CPU) / largestCPU
		compute := free(n) / largestCompute * float64(d.Compute()) / largestCompute
		return 100 * (1 - (cpu+compute)/2)
	}}
}

// packing takes shared cards first, then free cards of nodes in use, then free
// nodes.
func packing(*trace.Trace, uint64) replay.Placer {
	return rival{score: func(n *placement.Node, d *placement.Demand) float64 {
		if len(d.Parts) == 0 {
			return 0
		}
		whole := 0
		for c := range n.Cards {
			if n.Cards[c].Free.Compute == placement.WholeCompute {
				whole++
			}
		}
		if whole == len(n.Cards) {
			return float64(max(33-whole, whole))
		}
		if d.Parts[0].Whole {
			return float64(max(50-d.Parts[0].Cards, 33))
		}
		tightest := placement.WholeCompute
		for _, c := range fitting(n, &d.Parts[0]) {
			tightest = min(tightest, n.Cards[c].Free.Compute)
		}
		if tightest == placement.WholeCompute {
			return 50 - 1
		}
		return max(100-math.Floor(math.Floor(float64(tightest)/10)/10), 50)
	}}
}

// fgd takes the node, and on it the card, where the fragmentation grows least:
// what of the free compute a typical task cannot use.
type fgd struct {
	typical []typicalTask
}

type typicalTask struct {
	demand placement.Demand
	weight float64
}

// popular is the part of all tasks that the typical ones make up.
const popular = 0.95

func newFGD(t *trace.Trace, _ uint64) replay.Placer {
	counts := map[string]typicalTask{}
	for _, k := range t.Tasks {
		d := t.Kinds[k]
		d.Memory = 0 // it does not look at that
		key := fmt.Sprintf("%+v", d)
		counts[key] = typicalTask{d, counts[key].weight + 1}
	}
	keys := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(keys, func(a, b string) int { return int(counts[b].weight - counts[a].weight) })
	f := &fgd{}
	sum := 0.0
	for _, key := range keys {
		f.typical = append(f.typical, counts[key])
		if sum += counts[key].weight; sum >= popular*float64(len(t.Tasks)) {
			break
		}
	}
	for i := range f.typical {
		f.typical[i].weight /= sum
	}
	return f
}

func (f *fgd) fragments(n *placement.Node) float64 {
	all, sum := free(n), 0.0
	if all == 0 {
		return 0
	}
	for i := range f.typical {
		sum += f.typical[i].weight * unusable(n, &f.typical[i].demand, all)
	}
	return sum
}

// unusable is all that is free where the task does not fit, or else what is free
// on cards that do not have as much as it asks of one.
func unusable(n *placement.Node, d *placement.Demand, all float64) float64 {
	if len(d.Parts) == 0 || n.FreeCPU < d.CPU || len(d.Models) > 0 && !slices.Contains(d.Models, n.Cards[0].Model) {
		return all
	}
	asked := placement.Milli(d.Compute() / int64(d.Parts[0].Cards))
	enough, small := 0, 0.0
	for c := range n.Cards {
		if has := n.Cards[c].Free.Compute; has >= asked {
			enough++
		} else {
			small += float64(has)
		}
	}
	if enough < d.Parts[0].Cards {
		return all
	}
	return small
}

func (f *fgd) Score(n *placement.Node, d *placement.Demand) (float64, bool) {
	_, score, fits := f.best(n, d)
	return score, fits
}

func (f *fgd) Choose(n *placement.Node, d *placement.Demand) (placement.Choice, bool) {
	choice, _, fits := f.best(n, d)
	return choice, fits
}

func (f *fgd) best(n *placement.Node, d *placement.Demand) (placement.Choice, float64, bool) {
	choice, fits := placement.Policies{Card: placement.Binpack}.Choose(n, d)
	if !fits {
		return nil, 0, false
	}
	before, after := f.fragments(n), n.Clone()
	grade := func(c placement.Choice) float64 {
		after.Take(d, c)
		shrunk := before - f.fragments(after)
		after.Release(d, c)
		return math.Floor(100 / (1 + math.Exp(-shrunk/1000)))
	}
	if len(d.Parts) == 0 || d.Parts[0].Whole || d.Parts[0].Cards > 1 {
		return choice, grade(choice), true
	}
	best := math.Inf(-1)
	for _, c := range fitting(n, &d.Parts[0]) {
		on := placement.Choice{{Part: 0, Card: c}}
		if g := grade(on); g > best {
			best, choice = g, on
		}
	}
	return choice, best, true
}
