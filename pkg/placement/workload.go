// SPDX-License-Identifier: Apache-2.0

package placement

// Workload is what Fragmentation expects to be asked for next: kinds of demand
// with how often each is asked. It is not changed once made, so it may be shared.
type Workload struct {
	kinds []kind
}

// Expected is one kind of demand, with its weight among all.
type Expected struct {
	Demand Demand
	// Weight is how often it is asked for, in any unit; not negative.
	Weight float64
}

// NewWorkload makes a workload of what was seen: the tasks of a trace, or the
// demands of pods that run or were asked for lately. Equal demands are merged,
// and kinds too rare to matter are left out, so the input may be long.
// Accepts is not looked at.
func NewWorkload(seen []Expected) *Workload { return newWorkload(seen) }

type kind struct {
	demand Demand
	weight float64
}

func newWorkload(seen []Expected) *Workload {
	w := &Workload{}
	for _, e := range seen {
		w.kinds = append(w.kinds, kind{e.Demand, e.Weight})
	}
	return w
}

func (w *Workload) known() bool { return w != nil && len(w.kinds) > 0 }

// loss is what the workload loses of the node by taking the card for the part.
func (w *Workload) loss(n *Node, index int, part *Part) float64 {
	after := n.Clone()
	after.take(part, index)
	return w.nodeLoss(n, after)
}

func (w *Workload) nodeLoss(before, after *Node) float64 { return w.stranded(after) - w.stranded(before) }

// stranded is how much compute of the node a task of the workload cannot use, on
// average over the workload, in cards.
func (w *Workload) stranded(n *Node) float64 {
	sum, weights := 0.0, 0.0
	for i := range w.kinds {
		k := &w.kinds[i]
		fits := n.hostFits(&k.demand)
		for c := range n.Cards {
			usable := fits
			for p := range k.demand.Parts {
				usable = usable && n.refusal(c, &k.demand, &k.demand.Parts[p]) == accepted
			}
			if !usable {
				sum += k.weight * float64(n.Cards[c].Free.Compute) / float64(WholeCompute)
			}
		}
		weights += k.weight
	}
	return sum / weights
}
