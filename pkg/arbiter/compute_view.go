// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Guarantees tells what each share that is served was promised of its card's
// compute, and what it got, by key. It is empty while the arbiter serves nothing.
func (a *Arbiter) Guarantees(ctx context.Context) []nodeview.Guarantee {
	_, shares := a.leases(ctx)
	all := make([]nodeview.Guarantee, 0, len(shares))
	for _, s := range shares {
		all = append(all, s.Guarantee)
	}
	slices.SortFunc(all, func(a, b nodeview.Guarantee) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// View is all that is known of the cards that have shares: nothing while the arbiter
// serves none.
func (a *Arbiter) View(ctx context.Context) nodeview.Node {
	node := nodeview.Node{Version: a.config.Version, Cards: []nodeview.Card{}}
	if !a.serving.Load() {
		return node
	}
	node.Scheduling, node.Wakeups = a.compute.scheduling, a.compute.wakeups.Load()
	cards, shares := a.leases(ctx)
	a.mu.Lock()
	hosted := slices.Collect(maps.Values(a.hosted))
	a.mu.Unlock()
	for _, c := range hosted {
		if v := c.view(cards[c.id], shares); len(v.Shares) > 0 {
			node.Cards = append(node.Cards, v)
		}
	}
	for _, c := range node.Cards {
		for i := range c.Shares {
			for j := range c.Shares[i].Processes {
				p := &c.Shares[i].Processes[j]
				p.Pod = podOf(p.PID)
			}
		}
	}
	slices.SortFunc(node.Cards, func(a, b nodeview.Card) int { return cmp.Compare(a.UUID, b.UUID) })
	return node
}

// leases asks the scheduling thread for what it knows of cards and of shares.
func (a *Arbiter) leases(ctx context.Context) (map[card.UUID]nodeview.Card, map[share.Key]nodeview.Share) {
	cards, shares := map[card.UUID]nodeview.Card{}, map[share.Key]nodeview.Share{}
	if !a.serving.Load() {
		return cards, shares
	}
	if !a.compute.ask(ctx, func(now lease.Time) { a.compute.view(now, cards, shares) }) {
		return map[card.UUID]nodeview.Card{}, map[share.Key]nodeview.Share{} // it may write into the others still
	}
	return cards, shares
}

func (c *compute) view(now lease.Time, cards map[card.UUID]nodeview.Card, shares map[share.Key]nodeview.Share) {
	for _, state := range c.scheduler.State(now) {
		v := nodeview.Card{UUID: state.Card, Holder: state.Holder, Quantum: state.Quantum, Switches: state.Switches}
		if state.Holder != "" {
			v.HeldFor = now - state.Since
		}
		cards[state.Card] = v
		for i := range state.Tenants {
			if t := c.tenants[state.Tenants[i].Key]; t != nil {
				shares[t.Key] = t.view(&state.Tenants[i])
			}
		}
	}
}

func (t *tenant) view(s *lease.TenantState) nodeview.Share {
	return nodeview.Share{
		Guarantee: nodeview.Guarantee{
			Key: s.Key, ID: t.id, Card: s.Card, Policy: s.Policy, Class: s.Class, Limits: s.Limits, Ceiling: s.Ceiling, Whole: s.Whole,
			State: stateName(s.Grant.State), Rate: s.Rate, Balance: s.Balance,
			Held: s.Usage.Held, Wanted: s.Usage.Wanted, Entitled: s.Usage.Entitled, Throttled: s.Usage.Throttled,
			Preemptions: s.Usage.Preemptions, Latency: t.latency,
		},
		Wants: s.Wants, Draining: s.Draining, Contended: s.Grant.Contended, Tell: s.Grant.Tell,
	}
}

// Names of the states of a lease.
const (
	stateClosed = "closed"
	stateOpen   = "open"
	stateFree   = "free"
)

func stateName(s lease.State) string {
	switch s {
	case lease.Open:
		return stateOpen
	case lease.Free:
		return stateFree
	case lease.Closed:
	}
	return stateClosed
}

// view adds what is known of the card besides leases.
func (c *hostedCard) view(v nodeview.Card, leases map[share.Key]nodeview.Share) nodeview.Card {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.UUID = c.id
	v.CoresFree, v.OfflineCoresFree = card.WholeCompute, card.WholeCompute
	v.MemoryUsed, v.MemoryReadable = c.watched.figures.Used, c.watched.figures.Readable
	handedOut := card.MiB(0)
	for _, s := range c.shares {
		d := s.document
		v.Model, v.PCIBusID, v.Simulated, v.MemoryMiB = d.Card.ProductName, d.Card.PCIBusID, d.Card.Simulated, d.Card.Memory
		if d.Whole {
			v.CoresFree, v.OfflineCoresFree, handedOut = 0, 0, d.Card.Memory
		} else {
			v.CoresFree -= d.Limits.Cores
			v.OfflineCoresFree -= d.Limits.OfflineCores
			handedOut += d.Limits.Memory
		}
		if of, known := leases[s.key]; known {
			v.Shares = append(v.Shares, s.view(of))
		}
	}
	v.MemoryFreeMiB = v.MemoryMiB - handedOut
	slices.SortFunc(v.Shares, func(a, b nodeview.Share) int {
		return cmp.Or(cmp.Compare(a.ID.Claim.String(), b.ID.Claim.String()), cmp.Compare(a.ID.Request, b.ID.Request), cmp.Compare(a.Key, b.Key))
	})
	return v
}

// view adds what is known of the share besides its lease. The caller has card.mu.
func (s *served) view(v nodeview.Share) nodeview.Share {
	u := s.use()
	v.Withheld, v.Findings = s.withheld, map[string]int{}
	for kind, n := range s.findings {
		v.Findings[string(kind)] = n
	}
	v.MemoryLimit, v.Unlimited, v.MemoryUsed, v.MemoryImplicit = u.Limit, u.Unlimited, u.Charged, u.Implicit
	v.Processes = []nodeview.Process{}
	for _, a := range s.attached {
		if a == nil {
			continue
		}
		p := nodeview.Process{PID: a.pid}
		if s.ledger != nil {
			p.PIDInContainer = int(a.words().NSPID.Load())
		}
		if a.demand != nil {
			d := a.demand.words
			p.Wants, p.Waiting, p.Used, p.Waited = d.Wants.Load() != 0, d.Waiting.Load(), said(&d.Used), said(&d.Waited)
		}
		v.Processes = append(v.Processes, p)
	}
	return v
}

// said is a time that a tenant wrote.
func said(word interface{ Load() uint64 }) time.Duration {
	return time.Duration(min(word.Load(), uint64(forever)))
}
