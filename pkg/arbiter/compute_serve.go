// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"fmt"

	"github.com/tranche-dra/tranche/pkg/lease"
)

// What the rest of the arbiter tells the scheduling thread. All but unschedule only
// leave word for it.

// schedule makes the share known as its document says. The caller has card.mu.
func (s *served) schedule() {
	c, document, grant := s.arbiter.compute, s.document, s.grant.words
	c.post(func(now lease.Time) { c.put(document, grant, now) })
}

// unschedule waits until no page of the share is looked at any more. The processes of
// a share that has ended wait for nothing from then on.
func (s *served) unschedule(ended bool) {
	c := s.arbiter.compute
	c.await(func(now lease.Time) { c.remove(s.key, ended, now) })
}

// join makes known what a process wants. The caller has card.mu.
func (s *served) join(a *attachment) {
	c, demand, ledger := s.arbiter.compute, a.demand.words, s.ledger.words
	c.post(func(now lease.Time) { c.join(s.key, a, demand, ledger, now) })
}

// leave says that the process has ended.
func (s *served) leave(a *attachment) {
	c := s.arbiter.compute
	c.post(func(now lease.Time) { c.leave(s.key, a, now) })
}

// part lets go of the page of an attachment that is no more. The caller has card.mu.
func (s *served) part(a *attachment) {
	c, demand := s.arbiter.compute, a.demand
	a.demand = nil
	c.post(func(now lease.Time) {
		c.leave(s.key, a, now)
		demand.close()
	})
}

// withholdCompute makes known whether the watchdog withholds the share. The caller
// has card.mu.
func (s *served) withholdCompute() {
	c, withheld := s.arbiter.compute, s.withheld
	c.post(func(now lease.Time) { c.withhold(s.key, withheld, now) })
}

// computeAlive is nil when the scheduling thread gets on with its work.
func (a *Arbiter) computeAlive(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, aliveLimit)
	defer cancel()
	switch {
	case a.compute.ask(limited, func(lease.Time) {}), !a.serving.Load():
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("ask the scheduling thread: %w", context.Cause(ctx))
	}
	return ErrStuck
}
