// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Workload is what Fragmentation expects to be asked for next: kinds of demand
// with how often each is asked. It is not changed once made, so it may be shared.
type Workload struct {
	groups []group
	// waste of a card by what of its compute is free: how much of that is likely
	// never to be used, in cards.
	waste [WholeCompute + 1]float64
}

// Expected is one kind of demand, with its weight among all.
type Expected struct {
	Demand Demand
	// Weight is how often it is asked for, in any unit; not negative.
	Weight float64
}

// group is the kinds that accept the same models; none stands for every model.
type group struct {
	models []string
	kinds  []kind
}

// kind is one kind of demand, as its needs per card of compute.
type kind struct {
	// weight is its part of all compute that is asked for.
	weight float64
	// cards it needs at once, and whether whole.
	cards int
	whole bool
	// How much compute goes with one unit of the host's CPU and memory and of a
	// card's memory; infinite where nothing of that is asked.
	perCPU, perMemory, perCardMemory float64
}

// NewWorkload makes a workload of what was seen: the tasks of a trace, or the
// demands of pods that run or were asked for lately. Equal demands are merged,
// so the input may be long. What asks for no compute of the online ledger is
// left out: compute is what this measures by. Accepts is not looked at.
func NewWorkload(seen []Expected) *Workload {
	total := 0.0
	sizes := [WholeCompute + 1]float64{}
	kinds := map[string]map[kind]float64{}
	models := map[string][]string{}
	for i := range seen {
		d := &seen[i].Demand
		for j := range d.Parts {
			part := &d.Parts[j]
			compute := part.compute()
			if compute <= 0 || seen[i].Weight <= 0 {
				continue
			}
			weight := seen[i].Weight * float64(part.Cards) * cards(compute)
			total += weight
			sizes[compute] += seen[i].Weight * float64(part.Cards)
			key := modelKey(d.Models)
			if kinds[key] == nil {
				kinds[key], models[key] = map[kind]float64{}, slices.Clone(d.Models)
			}
			kinds[key][kindOf(d, part)] += weight
		}
	}
	w := &Workload{waste: wasteOf(&sizes)}
	for key, of := range kinds {
		g := group{models: models[key]}
		for k, weight := range of {
			k.weight = weight / total
			g.kinds = append(g.kinds, k)
		}
		// Sums must not depend on the order of a map.
		slices.SortFunc(g.kinds, compareKinds)
		w.groups = append(w.groups, g)
	}
	slices.SortFunc(w.groups, func(a, b group) int { return slices.Compare(a.models, b.models) })
	return w
}

// Over is the same workload on a cluster of these nodes: kinds that only some of
// the cards can take weigh more on those. The plain workload knows nothing of
// which models are scarce.
func (w *Workload) Over(nodes []*Node) *Workload {
	out := *w
	out.groups = make([]group, len(w.groups))
	for i, g := range w.groups {
		out.groups[i] = group{g.models, slices.Clone(g.kinds)}
		for j := range g.kinds {
			all, right := 0, 0
			for _, n := range nodes {
				of := 0
				for c := range n.Cards {
					if g.accepts(n.Cards[c].Model) {
						of++
					}
				}
				all += len(n.Cards)
				if of >= g.kinds[j].cards {
					right += of
				}
			}
			if right > 0 {
				out.groups[i].kinds[j].weight *= float64(all) / float64(right)
			}
		}
	}
	return &out
}

func modelKey(models []string) string {
	sorted := slices.Sorted(slices.Values(models))
	return strings.Join(sorted, "\x00")
}

func (g *group) accepts(model string) bool {
	return len(g.models) == 0 || slices.Contains(g.models, model)
}

// compute of one card that the part takes.
func (p *Part) compute() Milli {
	if p.Whole {
		return WholeCompute
	}
	return min(p.Amount.Compute, WholeCompute)
}

func cards(m Milli) float64 { return float64(m) / float64(WholeCompute) }

// kindOf leaves the weight out, so that equal kinds are equal.
func kindOf(d *Demand, part *Part) kind {
	size := cards(part.compute()) * float64(part.Cards)
	per := func(amount float64) float64 {
		if amount <= 0 {
			return math.Inf(1)
		}
		return size / amount
	}
	k := kind{
		cards: part.Cards, whole: part.compute() == WholeCompute,
		perCPU: per(float64(d.CPU)), perMemory: per(float64(d.Memory)), perCardMemory: math.Inf(1),
	}
	if !part.Whole && part.Amount.Memory > 0 {
		k.perCardMemory = cards(part.compute()) / float64(part.Amount.Memory)
	}
	return k
}

func compareKinds(a, b kind) int {
	whole := 0
	if a.whole != b.whole {
		whole = 1
		if b.whole {
			whole = -1
		}
	}
	return cmp.Or(cmp.Compare(a.cards, b.cards), whole, cmp.Compare(a.perCPU, b.perCPU),
		cmp.Compare(a.perMemory, b.perMemory), cmp.Compare(a.perCardMemory, b.perCardMemory))
}

// patience is for how many more demands a hole in a card is taken to wait before
// it counts as waste. Between 20 and 100 it hardly matters, but where nearly all
// demands are shares: there 20 is better by some tenths of a point.
const patience = 50

// wasteOf tells for each amount of free compute how much of it stays free, on
// average: demands come at random with the sizes given; the first that fits goes
// in, and what it leaves is a smaller hole. A hole that only rare demands fit
// into is likely to stay as it is.
func wasteOf(sizes *[WholeCompute + 1]float64) [WholeCompute + 1]float64 {
	var waste [WholeCompute + 1]float64
	total := 0.0
	for _, s := range sizes {
		total += s
	}
	for free := range waste {
		fitting, after := 0.0, 0.0
		for size := 1; size <= free; size++ {
			if sizes[size] > 0 {
				fitting += sizes[size]
				after += sizes[size] * waste[free-size]
			}
		}
		stays := 1.0
		if fitting > 0 {
			stays = math.Exp(-patience * fitting / total)
			after /= fitting
		}
		waste[free] = stays*cards(Milli(free)) + (1-stays)*after
	}
	return waste
}

func (w *Workload) known() bool { return w != nil && len(w.groups) > 0 }

func (w *Workload) wasted(free Milli) float64 {
	return w.waste[min(max(free, 0), WholeCompute)]
}
