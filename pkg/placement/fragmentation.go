// SPDX-License-Identifier: Apache-2.0

package placement

import "math"

// How the parts of the measure weigh against each other. They were chosen on the
// production trace and on variants of it with more tasks without a card, more
// shares, more tasks of several cards, and more that want one model. Near these
// values the result mostly moves by less than a third of a point; where CPU is
// shortest, by half a point.
const (
	// hostWeight weighs compute that a kind cannot use against compute that
	// nobody can use.
	hostWeight = 0.5
	// scarceWeight is what of that counts where a kind does not accept the model:
	// it keeps kinds without a wish off the models that others wish for.
	scarceWeight = 0.3
	// togetherWeight is what counts where a kind of several cards does not find
	// them on one node.
	togetherWeight = 0.03
	// fillWeight prefers the node that is left with least free; it decides where
	// the rest is nearly equal.
	fillWeight = 0.005
)

// stranded is how much compute of the node is free without being of use, in
// cards. Three things strand compute:
//
//   - a hole in a card that is smaller than what is commonly asked for (waste);
//   - too little CPU or memory beside it: of what is free each kind can use what
//     the host's CPU and memory and the card's memory are enough for;
//   - whole cards that are fewer than a kind wants at once, and cards of a model
//     that it does not accept.
//
// The first is the same for all kinds. The others are added up over the kinds by
// their weight, so the measure falls when a demand goes where what it uses up
// was of least use to the others. Unlike the measure of the paper that this
// policy follows (FGD, USENIX ATC 2023), which asks of each kind whether one more
// of it would fit, this asks how much of what is free the kind could fill: a node
// with eight free cards and CPU for one is seen as nearly full.
func (w *Workload) stranded(n *Node) float64 {
	sum := 0.0
	for i := range n.Cards {
		if c := &n.Cards[i]; !c.Tainted && !c.WholeOnly {
			sum += w.wasted(c.Free.Compute)
		}
	}
	for g := range w.groups {
		sum += hostWeight * w.groups[g].stranded(w, n)
	}
	return sum
}

// room is what of a node's cards a group of kinds finds free, in cards.
type room struct {
	// free of all cards; usable without waste, by shares and whole; whole cards.
	free, usable, wholeOnly float64
	whole                   int
	// shared are the cards that take shares, where the memory of some is known.
	shared      []sharedCard
	memoryKnown bool
}

// sharedCard is what is free on it without waste, and its free memory.
type sharedCard struct{ usable, memory float64 }

// room looks at the cards. It appends to shared, so that the caller's stack can
// hold what it finds.
func (g *group) room(w *Workload, n *Node, shared []sharedCard) room {
	r := room{shared: shared}
	for i := range n.Cards {
		c := &n.Cards[i]
		if c.Tainted {
			continue
		}
		free := cards(c.Free.Compute)
		r.free += free
		if !g.accepts(c.Model) {
			continue
		}
		if c.Free.Compute >= WholeCompute && c.Empty() {
			r.whole++
		}
		if c.WholeOnly {
			r.wholeOnly += free
			continue
		}
		usable := free - w.wasted(c.Free.Compute)
		r.usable += usable
		r.memoryKnown = r.memoryKnown || c.Total.Memory > 0
		if usable > 0 {
			r.shared = append(r.shared, sharedCard{usable, float64(c.Free.Memory)})
		}
	}
	return r
}

func (g *group) stranded(w *Workload, n *Node) float64 {
	var some [16]sharedCard
	r := g.room(w, n, some[:0])
	if r.free == 0 {
		return 0
	}
	none := r.usable == 0 && r.wholeOnly == 0
	cpu, memory := math.Inf(1), math.Inf(1)
	if n.CPU > 0 {
		cpu = float64(n.FreeCPU)
	}
	if n.Memory > 0 {
		memory = float64(n.FreeMemory)
	}
	sum := 0.0
	for i := range g.kinds {
		k := &g.kinds[i]
		if none {
			sum += scarceWeight * k.weight * r.free
			continue
		}
		usable := r.usable
		if r.memoryKnown && !math.IsInf(k.perCardMemory, 1) {
			usable = k.withMemory(r.shared)
		}
		if k.whole {
			usable += r.wholeOnly
		}
		usable = min(usable, cpu*k.perCPU, memory*k.perMemory)
		sum += k.weight * (r.free - usable)
		if k.cards > 1 {
			together := float64(r.whole / k.cards * k.cards)
			sum += togetherWeight * k.weight * max(usable-together, 0)
		}
	}
	return sum
}

// withMemory is what of the cards a kind can use that needs their memory with
// their compute.
func (k *kind) withMemory(shared []sharedCard) float64 {
	usable := 0.0
	for i := range shared {
		usable += min(shared[i].usable, shared[i].memory*k.perCardMemory)
	}
	return usable
}

// free is what is free of the node's compute, in cards.
func (n *Node) free() float64 {
	sum := 0.0
	for i := range n.Cards {
		if !n.Cards[i].Tainted {
			sum += cards(n.Cards[i].Free.Compute)
		}
	}
	return sum
}
