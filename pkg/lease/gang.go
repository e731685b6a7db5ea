// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math"
	"slices"

	"github.com/tranche-dra/tranche/pkg/share"
)

// gang is the shares of one claim, on several cards. Those of them who want their
// cards are opened together and closed together.
type gang struct {
	name    string
	members []*tenant // by key
	// pressing: a card is kept for the gang, others are still to be had.
	pressing bool
	// stuck: closed with work in flight that waits for a member who was
	// closed as well.
	stuck bool
	// shut is when the gang was closed after it had been opened in its turn.
	shut   Time
	unwind bool // it is open only because it was stuck
}

// join the gang with that name, and leave any other.
func (s *Scheduler) join(t *tenant, name string) {
	if g := t.gang; g != nil {
		if g.name == name {
			return
		}
		t.gang = nil
		g.members = slices.DeleteFunc(g.members, func(o *tenant) bool { return o == t })
		if len(g.members) == 0 {
			delete(s.gangs, g.name)
		}
	}
	if name == "" {
		return
	}
	g := s.gangs[name]
	if g == nil {
		g = &gang{name: name}
		s.gangs[name] = g
	}
	at, _ := slices.BinarySearchFunc(g.members, t, byKey)
	g.members = slices.Insert(g.members, at, t)
	t.gang = g
}

// takesPart tells whether the member is one that the gang needs at present.
func (t *tenant) takesPart() bool { return t.counts() && !t.free }

// lag of a gang is the least of its members': so that on no card it gets more than its part
// there. It is the same on all cards, so that of two gangs that meet on
// several cards the same one is first on all of them.
func (g *gang) lag() float64 {
	lag := math.Inf(1)
	for _, m := range g.members {
		if m.takesPart() {
			lag = min(lag, m.ownLag())
		}
	}
	if math.IsInf(lag, 1) {
		return 0
	}
	return lag
}

// ready tells whether nothing of their own keeps the members from their cards.
func (g *gang) ready() bool {
	for _, m := range g.members {
		if m.takesPart() && !m.open && !m.roomy() && !g.stuck {
			return false
		}
	}
	return true
}

func (g *gang) shutAt(now Time) {
	if !g.unwind {
		g.shut = now
	}
	g.unwind, g.stuck = false, false
}

// Stuck tells that a tenant that was closed does not drain, and has threads that
// wait. Where it is one of a gang, the gang is opened once more, as long as the work
// in flight of anybody may keep the others waiting.
func (s *Scheduler) Stuck(now Time, key share.Key) {
	t := s.find(now, key)
	if t == nil || t.gang == nil || len(t.gang.members) < 2 || !t.draining {
		return
	}
	if g := t.gang; s.now < g.shut+s.config.Drain {
		g.stuck = true
		s.touch(t)
	}
}

// assemble the gang of a tenant that is to have the card, and tell who is to be opened now:
// nobody while the card is kept for the gang, another tenant where the gang is
// not the first one in line on all of its cards.
func (s *Scheduler) assemble(b *board, t *tenant, now Time) *tenant {
	g := t.gang
	wait := false
	for _, m := range g.members {
		if m == t || m.open || !m.takesPart() {
			continue
		}
		switch best := m.board.best(m.lower, now); {
		case best != m:
			g.pressing = false
			return b.bestSingle(t.lower, now)
		case m.board.holder != nil:
			if !g.pressing {
				g.pressing = true
				m.board.due = 0
			}
			wait = true
		case !m.board.clear(m, now):
			wait = true
		}
	}
	if wait || !b.clear(t, now) {
		return nil
	}
	for _, m := range g.members {
		if m != t && !m.open && m.takesPart() {
			s.open(m, now)
			m.board.due = 0
		}
	}
	g.pressing = false
	g.unwind, g.stuck = g.stuck, false
	return t
}

// bestSingle is the best of those who need no other card.
func (b *board) bestSingle(lower bool, now Time) *tenant {
	if lower && !b.lent(now) {
		return nil
	}
	var best *tenant
	for _, t := range b.tenants {
		if t.lower == lower && !t.open && t.gang == nil && t.ready() && (best == nil || t.before(best)) {
			best = t
		}
	}
	return best
}
