// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"
)

// remembered gaps; the last but one of so many in order of length is the 95th percentile.
const remembered = 32

// gaps that a share leaves between its requests, and how long it is given to come back.
type gaps struct {
	recent [remembered]time.Duration // a ring
	n      int
	began  Time
	until  Time // when the present one is longer than usual
	asleep bool
}

// slept: the share wants the card no more.
func (g *gaps) slept(now Time) { g.began, g.asleep = now, true }

// woke: it wants it again. Long gaps are pauses, which say nothing about the gaps of
// work.
func (g *gaps) woke(now Time, c Config) {
	if !g.asleep {
		return
	}
	g.asleep, g.until = false, 0
	if gap := now - g.began; gap <= c.LongestHold/2 {
		g.recent[g.n%remembered] = gap
		g.n++
	}
}

// hold is how long a gap has to be before others are let in.
func (g *gaps) hold(c Config) time.Duration {
	var first, second time.Duration
	for _, gap := range g.recent[:min(g.n, remembered)] {
		switch {
		case gap > first:
			first, second = gap, first
		case gap > second:
			second = gap
		}
	}
	return min(max(c.Hold, 2*second), c.LongestHold)
}
