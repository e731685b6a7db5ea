// SPDX-License-Identifier: Apache-2.0

package arbiter

import "slices"

// recent is how many contexts of a share are remembered.
const recent = 16

// observed are what the latest contexts of a share took, in bytes.
type observed struct {
	contexts []uint64
}

func (o *observed) add(bytes uint64) {
	o.contexts = append(o.contexts, bytes)
	if len(o.contexts) > recent {
		o.contexts = slices.Delete(o.contexts, 0, 1)
	}
}

// largest of those remembered, 0 where there is none.
func (o *observed) largest() uint64 {
	if len(o.contexts) == 0 {
		return 0
	}
	return slices.Max(o.contexts)
}

// learn takes the first measurement of a process for what a context takes. The
// caller has card.mu.
func (s *served) learn(a *attachment, used uint64) {
	c := s.card
	attachments := c.of(a.pid)
	for _, other := range attachments {
		if other.measured {
			return
		}
		used = less(used, other.words().Committed.Load())
	}
	if used == 0 {
		return
	}
	for _, other := range attachments {
		other.measured = true
	}
	s.contexts.add((used + frame - 1) / frame * frame)
	c.estimateAnew()
}

// estimateAnew tells the shares what a context is expected to take: what their
// own took, for a tenant can make its own look large; where a share has had none
// yet, what is usual for the other shares of the card. The caller has mu.
func (c *hostedCard) estimateAnew() {
	var others []uint64
	for _, s := range c.shares {
		if largest := s.contexts.largest(); largest > 0 {
			others = append(others, largest)
		}
	}
	usual := c.estimate
	if len(others) > 0 {
		slices.Sort(others)
		usual = min(others[(len(others)-1)/2], 2*c.estimate)
	}
	for _, s := range c.shares {
		estimate := s.contexts.largest()
		if estimate == 0 {
			estimate = usual
		}
		if words := s.grant.words; words.ContextEstimate.Load() != estimate {
			words.ContextEstimate.Store(estimate)
		}
	}
}
