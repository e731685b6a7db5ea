// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Scheduler decides for all cards of a node.
type Scheduler struct {
	config  Config
	now     Time
	tenants map[share.Key]*tenant
	boards  []*board // by card
	gangs   map[gangName]*gang

	closing, changes []Change
	preempted, spare []Preempted

	choice int // counts the choices of who is next
}

// New Scheduler without tenants.
func New(c Config) *Scheduler {
	return &Scheduler{
		config:  c.withDefaults(),
		tenants: map[share.Key]*tenant{},
		gangs:   map[gangName]*gang{},
	}
}

func (c Config) withDefaults() Config {
	c.Quantum = cmp.Or(c.Quantum, 10*time.Millisecond)
	c.ShortestQuantum = cmp.Or(c.ShortestQuantum, 2*time.Millisecond)
	c.LongestQuantum = cmp.Or(c.LongestQuantum, 20*time.Millisecond)
	c.Credit = cmp.Or(c.Credit, 20*time.Millisecond)
	c.Hold = cmp.Or(c.Hold, time.Millisecond)
	c.LongestHold = cmp.Or(c.LongestHold, 20*time.Millisecond)
	c.Least = cmp.Or(c.Least, time.Millisecond)
	c.Drain = cmp.Or(c.Drain, 100*time.Millisecond)
	c.Lead = cmp.Or(c.Lead, 100*time.Microsecond)
	return c
}

// at is the time that a call with now is made at: never before the last one's.
func (s *Scheduler) at(now Time) Time {
	s.now = max(s.now, now)
	return s.now
}

// find the tenant, with its card accounted for until now.
func (s *Scheduler) find(now Time, key share.Key) *tenant {
	t := s.tenants[key]
	if t != nil {
		t.board.account(s.at(now))
	}
	return t
}

// Put adds a tenant, or changes one. A tenant that is put on another card is a
// new one there.
func (s *Scheduler) Put(now Time, spec Tenant) {
	t := s.find(now, spec.Key)
	var told Grant
	if t != nil && t.Card != spec.Card {
		told = t.told
		s.Remove(now, spec.Key)
		t = nil
	}
	if t == nil {
		t = &tenant{Tenant: Tenant{Key: spec.Key}, board: s.board(s.at(now), spec.Card), told: told}
		s.tenants[spec.Key] = t
		at, _ := slices.BinarySearchFunc(t.board.tenants, t, byKey)
		t.board.tenants = slices.Insert(t.board.tenants, at, t)
	}
	s.touch(t) // and the gang that it leaves
	t.put(spec)
	s.join(t, gangName{spec.Gang, t.lower})
	t.board.rerate()
	s.touch(t)
}

// Remove forgets a tenant, and what it had in flight.
func (s *Scheduler) Remove(now Time, key share.Key) {
	t := s.find(now, key)
	if t == nil {
		return
	}
	b := t.board
	s.touch(t)
	s.settle(t, s.now)
	s.join(t, gangName{})
	t.wants = false
	if b.holder == t {
		b.holder = nil
	}
	b.gone(t)
	delete(s.tenants, key)
	b.tenants = slices.DeleteFunc(b.tenants, func(o *tenant) bool { return o == t })
	if len(b.tenants) == 0 {
		s.boards = slices.DeleteFunc(s.boards, func(o *board) bool { return o == b })
		return
	}
	b.rerate()
}

// Wants tells that the tenant wants the card, or wants it no more and has nothing
// in flight.
func (s *Scheduler) Wants(now Time, key share.Key, wants bool) {
	t := s.find(now, key)
	if t == nil {
		return
	}
	if wants && t.lingers != 0 {
		t.lingers = 0
		return
	}
	if t.wants == wants || t.lingers != 0 {
		return
	}
	if !wants && t.gang != nil {
		if t.gang.inStep(t) {
			t.lingers = s.now + t.gang.lingering(t)
			s.settle(t, s.now)
			s.touch(t)
			return
		}
		for _, m := range t.gang.members {
			if m.lingers != 0 {
				s.want(m, false)
			}
		}
	}
	s.want(t, wants)
}

// want the card, or want it no more.
func (s *Scheduler) want(t *tenant, wants bool) {
	b := t.board
	t.wants, t.lingers = wants, 0
	if wants {
		t.asked, t.woke = s.now, !t.open
		t.gaps.woke(s.now, s.config)
		if t.open && t.ceiling == 1 && !b.contended(t) {
			t.since, t.turn = s.now, s.now
		}
	} else {
		t.gaps.slept(s.now)
		if t.Class == share.Online {
			t.gaps.until = s.now + t.gaps.hold(s.config)
		}
		s.settle(t, s.now)
		b.gone(t)
	}
	b.rerate()
	s.touch(t)
}

// Processes of the tenant that may have something in flight, 1 until it is told: the hardware divides the card among those of
// all tenants that have something in flight.
func (s *Scheduler) Processes(now Time, key share.Key, n int) {
	if t := s.find(now, key); t != nil {
		t.processes = n
	}
}

// Drained tells that nothing is in flight any more of a tenant that was closed.
func (s *Scheduler) Drained(now Time, key share.Key) {
	s.Drains(now, key, now)
}

// Drains tells that nothing will be in flight any more of a tenant that was closed from then on,
// which is no later than Lead away. The next one is opened at once: what it launches comes to the
// card when the card is idle, and until then the time is that of the one who leaves.
func (s *Scheduler) Drains(now Time, key share.Key, at Time) {
	t := s.find(now, key)
	if t == nil || !t.draining {
		return
	}
	if at = min(at, s.now+s.config.Lead); at > s.now {
		t.board.leaver, t.board.left = t, at
	}
	t.drained(max(at, s.now) - t.shut)
	s.settle(t, max(at, s.now))
	s.touch(t)
}

// Lags tells that something is in flight all the same of a tenant that was to have drained: it
// is charged, and waited for, until it has.
func (s *Scheduler) Lags(now Time, key share.Key) {
	if t := s.find(now, key); t != nil && t.wants && t.lingers == 0 && !t.open && !t.free && !t.draining {
		t.draining, t.quick = true, 0
		t.board.gone(t)
		s.touch(t)
	}
}

// Withhold keeps a tenant closed whatever it wants, until that is taken back.
func (s *Scheduler) Withhold(now Time, key share.Key, withheld bool) {
	if t := s.find(now, key); t != nil && t.withheld != withheld {
		t.withheld = withheld
		t.board.rerate()
		s.touch(t)
	}
}

// Preemptions that were completed since the last call. The slice is good until
// the next call.
func (s *Scheduler) Preemptions() []Preempted {
	done := s.preempted
	s.preempted, s.spare = s.spare[:0], done
	return done
}

// mostPreemptions that are kept for a caller who does not ask for them.
const mostPreemptions = 1024

// settle what a tenant has in flight: nothing.
func (s *Scheduler) settle(t *tenant, now Time) {
	if !t.draining {
		return
	}
	t.draining = false
	t.slow += (min(now-t.shut, s.config.Drain) - t.slow) / 4 // the last few count most
	t.own.stuck = false
	if t.gang != nil {
		t.gang.settled()
	}
	if t.stopped.For != "" && len(s.preempted) < mostPreemptions {
		t.stopped.Latency = now - t.stoppedAt
		s.preempted = append(s.preempted, t.stopped)
	}
	t.stopped = Preempted{}
}

// touch marks what a change of the tenant can make a difference to.
func (s *Scheduler) touch(t *tenant) {
	t.board.due = 0
	if t.gang != nil {
		t.gang.pressing = false
		for _, m := range t.gang.members {
			m.board.due = 0
		}
	}
}

// board of the card, made where there is none.
func (s *Scheduler) board(now Time, uuid card.UUID) *board {
	at, found := slices.BinarySearchFunc(s.boards, uuid, func(b *board, u card.UUID) int { return cmp.Compare(b.card, u) })
	if !found {
		s.boards = slices.Insert(s.boards, at, &board{card: uuid, config: &s.config, last: now, quantum: s.config.Quantum})
	}
	return s.boards[at]
}

func byKey(a, b *tenant) int { return cmp.Compare(a.Key, b.Key) }
