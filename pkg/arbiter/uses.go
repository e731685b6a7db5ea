// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"maps"
	"slices"

	"github.com/tranche-dra/tranche/pkg/metrics"
	"github.com/tranche-dra/tranche/pkg/wire"
)

var _ metrics.Uses = (*Arbiter)(nil)

// Uses implements metrics.Uses. What ledgers say is the tenants' word.
func (a *Arbiter) Uses() (shares []metrics.ShareUse, cards []metrics.CardUse) {
	a.mu.Lock()
	hosted := slices.Collect(maps.Values(a.hosted))
	a.mu.Unlock()
	for _, c := range hosted {
		c.mu.Lock()
		for _, s := range c.shares {
			shares = append(shares, s.use())
		}
		if f := c.watched.figures; len(c.shares) > 0 && f.Card != "" {
			cards = append(cards, f)
		}
		c.mu.Unlock()
	}
	return shares, cards
}

// use is what the share holds now. The caller has card.mu.
func (s *served) use() metrics.ShareUse {
	d := s.document
	limit := s.grant.words.MemoryLimit.Load()
	u := metrics.ShareUse{
		Namespace: d.Claim.Namespace, Claim: d.Claim.Name, Request: d.Request, Card: d.Card.UUID,
		Limit: limit, Unlimited: limit == wire.NoLimit, Refused: s.counts.refused, Reaped: s.counts.reaped, Withheld: s.withheld,
	}
	for _, count := range s.findings {
		u.Findings += count
	}
	if s.ledger != nil {
		u.Charged = s.ledger.words.Charge(s.grant.words.SlotsUsed.Load())
	}
	for _, a := range s.attached {
		if a == nil {
			continue
		}
		u.Processes++
		if s.ledger != nil {
			u.Implicit = wire.Add(u.Implicit, a.words().Implicit.Load())
		}
	}
	return u
}
