// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
)

// Free is what nobody holds, and how much of that is stranded: of no use to one
// more task, on average over the tasks, each weighing as much as the compute that
// it asks for. Where a task fits on a node, what is free on that node's other
// cards is of no use to it all the same.
type Free struct {
	// Compute in cards.
	Compute         float64 `json:"computeCards"`
	StrandedCompute float64 `json:"strandedComputeCards"`
	// CardMemory is 0 where the cards' memory is not known.
	CardMemory         card.MiB `json:"cardMemoryMiB"`
	StrandedCardMemory card.MiB `json:"strandedCardMemoryMiB"`
	// HostMemory of the nodes; 0 where it is not known.
	HostMemory         card.MiB `json:"hostMemoryMiB"`
	StrandedHostMemory card.MiB `json:"strandedHostMemoryMiB"`
}

// FreeOf adds up what is free on the nodes. counts says how many tasks there are
// of each kind; kinds that ask for no card are left out.
func FreeOf(nodes []placement.Node, kinds []placement.Demand, counts []int) Free {
	weights, total := weightsOf(kinds, counts)
	var f Free
	var stranded struct{ compute, card, host float64 }
	for i := range nodes {
		n := &nodes[i]
		compute, memory := freeCards(n)
		f.Compute += compute
		f.CardMemory += memory
		f.HostMemory += n.FreeMemory
		if total == 0 || compute == 0 && memory == 0 && n.FreeMemory == 0 {
			continue
		}
		for k, weight := range weights {
			if weight == 0 {
				continue
			}
			weight /= total
			if !placement.Fits(n, &kinds[k]) {
				stranded.compute += weight * compute
				stranded.card += weight * float64(memory)
				stranded.host += weight * float64(n.FreeMemory)
				continue
			}
			c, m := tooSmall(n, &kinds[k].Parts[0])
			stranded.compute += weight * c
			stranded.card += weight * float64(m)
		}
	}
	f.StrandedCompute = stranded.compute
	f.StrandedCardMemory = card.MiB(stranded.card)
	f.StrandedHostMemory = card.MiB(stranded.host)
	return f
}

func weightsOf(kinds []placement.Demand, counts []int) (weights []float64, total float64) {
	weights = make([]float64, len(kinds))
	for k := range kinds {
		for p := range kinds[k].Parts {
			part := &kinds[k].Parts[p]
			size := float64(max(part.Amount.Compute, part.Amount.Offline, 1))
			if part.Whole {
				size = float64(placement.WholeCompute)
			}
			weights[k] += size * float64(part.Cards*counts[k])
		}
		total += weights[k]
	}
	return weights, total
}

func freeCards(n *placement.Node) (compute float64, memory card.MiB) {
	for c := range n.Cards {
		compute += cards(n.Cards[c].Free.Compute)
		memory += n.Cards[c].Free.Memory
	}
	return compute, memory
}

// tooSmall is what is free on cards that alone do not take the part.
func tooSmall(n *placement.Node, part *placement.Part) (compute float64, memory card.MiB) {
	for c := range n.Cards {
		on := &n.Cards[c]
		if part.Whole && !on.Empty() || !part.Whole &&
			(on.Free.Compute < part.Amount.Compute || on.Free.Offline < part.Amount.Offline || on.Free.Memory < part.Amount.Memory) {
			compute += cards(on.Free.Compute)
			memory += on.Free.Memory
		}
	}
	return compute, memory
}

func cards(m placement.Milli) float64 { return float64(m) / float64(placement.WholeCompute) }
