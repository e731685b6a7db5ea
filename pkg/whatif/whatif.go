// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/replay"
)

// Report is what would happen under each policy.
type Report struct {
	Nodes    int       `json:"nodes"`
	Cards    int       `json:"cards"`
	Asked    int       `json:"asked"`
	Policies []Outcome `json:"policies"`
	// Unknown is what the export does not say, and so was not looked at.
	Unknown []string `json:"unknown,omitempty"`
	// LeftOut of what waits.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
}

// Outcome of one policy.
type Outcome struct {
	Policy string `json:"policy"`
	Placed int    `json:"placed"`
	// Allocated of all compute of the online ledger, before and afterwards.
	Before    float64 `json:"allocatedBefore"`
	Allocated float64 `json:"allocated"`
	// WholeCards that nobody is on afterwards.
	WholeCards int `json:"wholeCardsFree"`
	// Free afterwards; what is stranded is so for claims like those asked for.
	Free   replay.Free `json:"free"`
	Claims []Claim     `json:"claims"`
}

// Claim is what became of all of one claim's copies.
type Claim struct {
	Name   string `json:"name"`
	Asked  int    `json:"asked"`
	Placed int    `json:"placed"`
	// On which cards, one entry for each use of a card.
	On []Place `json:"on"`
	// Missing is why the first copy that found no room found none.
	Missing string `json:"missing,omitempty"`
}

// Place is one card, by its number on the node where that is published.
type Place struct {
	Node string `json:"node"`
	Card string `json:"card"`
}

// ErrNoCards: the export shows no card.
var ErrNoCards = errors.New("the cluster shows no card of gpu.tranche.dev: kubectl get nodes,resourceslices,resourceclaims,deviceclasses -A -o json exports what is needed")

// ErrNoClaims: there is nothing to try.
var ErrNoClaims = errors.New("nothing is asked for: give claims or templates to try, or an export with claims that wait")

// Compare tries what comes on the cluster under each policy, count times each; with
// nil, what waits there already, but for what cannot be simulated. Copies come in
// turn: one of each claim, then the second of each, and so on.
func Compare(ctx context.Context, o, comes *Objects, count int, policies []placement.Policies) (*Report, error) {
	c := clusterOf(o)
	if len(c.nodes) == 0 {
		return nil, ErrNoCards
	}
	var err error
	if c.anyone, err = c.screen(&ask{}); err != nil {
		return nil, err
	}
	c.anyone.apply(c.nodes)
	report := &Report{Nodes: len(c.nodes)}
	if len(c.hosts) == 0 {
		report.Unknown = append(report.Unknown, "taints of nodes: the export shows no nodes")
	}
	for i := range c.nodes {
		report.Cards += len(c.nodes[i].Cards)
	}
	trials, err := c.trials(ctx, o, comes, report)
	if err != nil {
		return nil, err
	}
	var demands []placement.Demand
	var counts []int
	for i := range trials {
		demands, counts = append(demands, trials[i].demand), append(counts, count)
		report.Asked += count
		c.held = append(c.held, placement.Expected{Demand: trials[i].demand, Weight: float64(count)})
	}
	workload := placement.NewWorkload(c.held).Over(pointers(c.nodes))
	for _, p := range policies {
		p.Workload = workload
		outcome := c.try(p, trials, count)
		outcome.Free = replay.FreeOf(outcome.nodes, demands, counts)
		report.Policies = append(report.Policies, outcome.Outcome)
	}
	return report, nil
}

// trial is an ask as it is tried.
type trial struct {
	name   string
	demand placement.Demand
	screen screen
}

// trials of what comes, which must all be possible, or else of what waits.
func (c *cluster) trials(ctx context.Context, o, comes *Objects, report *Report) ([]trial, error) {
	from := comes
	if from == nil {
		from = o
	}
	known, err := classesOf(from, o)
	if err != nil {
		return nil, err
	}
	asker := &asker{ctx: ctx, cluster: c, classes: known}
	var trials []trial
	for _, ask := range asksOf(from, known) {
		trial, err := asker.trial(&ask)
		switch {
		case err == nil:
			trials = append(trials, trial)
		case comes != nil:
			return nil, fmt.Errorf("%s: %w", &ask, err)
		default:
			report.leaveOut(&ask, err)
		}
	}
	switch {
	case len(trials) > 0:
		return trials, nil
	case len(report.LeftOut) > 0:
		return nil, fmt.Errorf("%w\n%s", ErrNoClaims, report.leftOut())
	}
	return nil, ErrNoClaims
}

func pointers(nodes []placement.Node) []*placement.Node {
	out := make([]*placement.Node, len(nodes))
	for i := range nodes {
		out[i] = &nodes[i]
	}
	return out
}

type outcome struct {
	Outcome
	nodes []placement.Node
}

func (c *cluster) try(p placement.Policies, trials []trial, count int) outcome {
	out := outcome{Outcome: Outcome{Policy: p.String(), Before: allocated(c.nodes), Claims: make([]Claim, len(trials))}}
	for i := range c.nodes {
		out.nodes = append(out.nodes, *c.nodes[i].Clone())
	}
	for i := range trials {
		out.Claims[i] = Claim{Name: trials[i].name, Asked: count, On: []Place{}}
	}
	for range count {
		for i := range trials {
			trials[i].screen.apply(out.nodes)
			out.ask(p, &out.Claims[i], &trials[i].demand, &trials[i].screen)
		}
	}
	c.anyone.apply(out.nodes)
	out.Allocated = allocated(out.nodes)
	for i := range out.nodes {
		for j := range out.nodes[i].Cards {
			if on := &out.nodes[i].Cards[j]; on.Empty() && !on.Tainted {
				out.WholeCards++
			}
		}
	}
	return out
}

// ask places one copy of a claim. Of equal nodes the first by name is taken.
func (o *outcome) ask(p placement.Policies, claim *Claim, d *placement.Demand, s *screen) {
	best, bestScore := -1, math.Inf(-1)
	for i := range o.nodes {
		if s.nodes[i] != open {
			continue
		}
		if score, fits := p.Score(&o.nodes[i], d); fits && score > bestScore {
			best, bestScore = i, score
		}
	}
	if best < 0 {
		if claim.Missing == "" {
			claim.Missing = s.missing(o.nodes, d)
		}
		return
	}
	n := &o.nodes[best]
	choice, _ := p.Choose(n, d)
	n.Take(d, choice)
	o.Placed++
	claim.Placed++
	for _, u := range choice {
		claim.On = append(claim.On, Place{n.Name, n.Cards[u.Card].Name})
	}
}

func allocated(nodes []placement.Node) float64 {
	var total, free int64
	for i := range nodes {
		for j := range nodes[i].Cards {
			total += int64(nodes[i].Cards[j].Total.Compute)
			free += int64(nodes[i].Cards[j].Free.Compute)
		}
	}
	if total == 0 {
		return 0
	}
	return float64(total-free) / float64(total)
}
