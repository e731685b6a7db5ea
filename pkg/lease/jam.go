// SPDX-License-Identifier: Apache-2.0

package lease

import "github.com/tranche-dra/tranche/pkg/share"

// jam is what is known of work that cannot end: that of a share of which one process, or
// one thread, waits on the card for what another was kept from launching, or that of a
// gang, whose members wait for each other in the same way.
type jam struct {
	// stuck: closed with work in flight that waits for what was not launched.
	stuck bool
	// shut is when it was closed after it had been opened in its turn, unwound when it was last
	// to be opened because it was stuck.
	shut, unwound Time
	unwind        bool // it is open only because it was stuck
}

// jam of the tenant, or of its gang.
func (t *tenant) jam() *jam {
	if t.gang != nil {
		return &t.gang.jam
	}
	return &t.own
}

// stuck tells whether the tenant is to be opened because its work cannot end.
func (t *tenant) stuck() bool { return t.jam().stuck && !t.open }

func (j *jam) shutAt(now Time) {
	if !j.unwind {
		j.shut = now
	}
	j.unwind, j.stuck = false, false
}

func (j *jam) opened() { j.unwind, j.stuck = j.stuck, false }

// patience with a tenant that drains ends then. That it was opened once more because it was
// stuck does not prolong it.
func (t *tenant) patience(c *Config) Time {
	return min(t.shut, t.jam().shut) + c.Drain
}

// Stuck tells that a tenant that was closed does not drain, although it should have, and that
// threads of it, or of its gang, wait; it may be said as often as that is seen. The tenant, with its
// gang, is opened once more for a shortest turn, which it is charged for: until Drain after
// the end of its turn each time, since the others would wait so long for anybody's work, and
// later once in such a time. A gang that has no member that drained and waits has long kernels, no more:
// who lags behind in a collective has nothing in flight.
func (s *Scheduler) Stuck(now Time, key share.Key) {
	t := s.find(now, key)
	if t == nil || !t.draining || t.withheld || t.gang != nil && !t.gang.halved() {
		return
	}
	j := t.jam()
	if s.now >= j.shut+s.config.Drain && s.now < j.unwound+s.config.Drain {
		return
	}
	j.unwound = s.now
	j.stuck = true
	s.touch(t)
	if t.gang != nil {
		t.gang.pressing = true
	}
}
