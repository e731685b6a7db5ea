// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Policy says what is preferred among nodes, or among the cards of a node.
type Policy string

// The policies.
const (
	// Binpack fills what is fullest, so that whole cards and nodes stay free.
	Binpack Policy = "binpack"
	// Spread takes what is emptiest, so that shares disturb each other least.
	Spread Policy = "spread"
	// Fragmentation takes where what remains free is worth most to the workload
	// that is to be expected.
	Fragmentation Policy = "fragmentation"
)

// Known in the order in which messages list them.
func Known() []Policy { return []Policy{Binpack, Spread, Fragmentation} }

// Policies is what decides: one policy among nodes, one among the cards of a
// node. Classes come before the card policy: online shares spread over cards and
// prefer cards without offline work, offline shares pack and prefer cards
// without online work. A Policies value is never changed by its methods.
type Policies struct {
	Node, Card Policy
	// Workload is what Fragmentation expects; nil is as an empty one, with which
	// Fragmentation is Binpack.
	Workload *Workload
}

// Default is spread over nodes and binpack on cards.
func Default() Policies { return Policies{Node: Spread, Card: Binpack} }

// Parse reads "spread/binpack", the policy among nodes and the one among cards,
// or one word for both.
func Parse(text string) (Policies, error) {
	node, card, two := strings.Cut(text, "/")
	if !two {
		card = node
	}
	p := Policies{Node: Policy(node), Card: Policy(card)}
	for _, one := range []Policy{p.Node, p.Card} {
		if !slices.Contains(Known(), one) {
			return Policies{}, fmt.Errorf("policy %q: NODE/CARD is right, or one word for both, of binpack, spread and fragmentation", text)
		}
	}
	return p, nil
}

// String is what Parse reads.
func (p Policies) String() string {
	if p.Node == p.Card {
		return string(p.Node)
	}
	return string(p.Node) + "/" + string(p.Card)
}

// Fits tells whether the node has room for the demand, whatever the policy.
func Fits(n *Node, d *Demand) bool {
	_, _, ok := Policies{Node: Binpack, Card: Binpack}.evaluate(n, d, false)
	return ok
}

// Choose picks the cards on the node that the policies like best, false where
// the demand does not fit there.
func (p Policies) Choose(n *Node, d *Demand) (Choice, bool) {
	choice, _, ok := p.evaluate(n, d, true)
	return choice, ok
}

// Order is all of the node's cards (indexes into Cards), best first, for an
// allocator that takes the first card that fits. Cards that the demand does not
// fit on come last, in the order of the node.
func (p Policies) Order(n *Node, d *Demand) []int { return p.order(n, d) }

// Score says how good the node is for the demand: higher is better, and only
// scores for the same demand and Policies can be compared. False where the
// demand does not fit.
func (p Policies) Score(n *Node, d *Demand) (float64, bool) {
	_, score, ok := p.evaluate(n, d, false)
	return score, ok
}

// Evaluate is Choose and Score in one.
func (p Policies) Evaluate(n *Node, d *Demand) (Choice, float64, bool) { return p.evaluate(n, d, true) }

// Normalize maps scores to 0 to top for a scheduler that adds up whole numbers.
// The best is top, and everything that is worse is at least one below it, so
// that rounding never turns a better node into an equal one. Nodes where work of
// the class to avoid would be met get 0 if there are others, and these the upper
// half.
func Normalize(scores []float64, top int64) []int64 { return normalize(scores, top) }
