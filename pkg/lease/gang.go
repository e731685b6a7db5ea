// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math"
	"slices"
	"time"
)

// gang is the shares of one claim, on several cards. Those of them who want their
// cards are opened together and closed together. Offline shares make a gang of their
// own: they cannot be had at the same time as others.
type gang struct {
	gangName
	members []*tenant // by key
	// pressing: a card is kept for the gang, others are still to be had.
	pressing bool
	jam
	passed int // the choice in which it was found not to be feasible
}

type gangName struct {
	name  string
	lower bool
}

// join the gang with that name, and leave any other.
func (s *Scheduler) join(t *tenant, name gangName) {
	if g := t.gang; g != nil {
		if g.gangName == name {
			return
		}
		t.gang = nil
		g.members = slices.DeleteFunc(g.members, func(o *tenant) bool { return o == t })
		if len(g.members) == 0 {
			delete(s.gangs, g.gangName)
		}
	}
	if name.name == "" {
		return
	}
	g := s.gangs[name]
	if g == nil {
		g = &gang{gangName: name}
		s.gangs[name] = g
	}
	for _, m := range g.members {
		if m.board == t.board {
			return // a card has one holder: the two cannot be opened together
		}
	}
	at, _ := slices.BinarySearchFunc(g.members, t, byKey)
	g.members = slices.Insert(g.members, at, t)
	t.gang = g
}

// lingering is how long a member whose others want their cards is taken for one who wants
// its own after it said that it does not: more than a round of turns, longestLingering at most. One
// thread that feeds several cards waits at one of them, and comes to the next one when it has that.
// If those it has not come to were given to others meanwhile, it would have one
// card at a time from then on, each in a turn of its own. What others' work takes longer than their turns
// makes rounds longer.
const (
	lingering        = 50 * time.Millisecond
	longestLingering = time.Second
)

// lingering of a member that wants its card no more.
func (g *gang) lingering(t *tenant) time.Duration {
	most := lingering
	for _, m := range g.members {
		if m != t && m.wants {
			most = max(most, 2*m.board.lap(m))
		}
	}
	return min(most, longestLingering)
}

// lap is how long it takes, most likely, until all others of the tenant's level have had the card once.
func (b *board) lap(t *tenant) (lap time.Duration) {
	for _, o := range b.tenants {
		if o != t && o.lower == t.lower && o.counts() {
			lap += b.turnOf(o) + o.slow
		}
	}
	return lap
}

// inStep tells whether another member wants its card, so that t, which does not at
// present, is to go on taking part.
func (g *gang) inStep(t *tenant) bool {
	return slices.ContainsFunc(g.members, func(m *tenant) bool { return m != t && m.wants && m.lingers == 0 })
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

// settled: nothing of a member is in flight any more.
func (g *gang) settled() {
	for _, m := range g.members {
		if m.draining {
			return
		}
	}
	g.stuck = false
}

// halved tells whether a member has drained and waits, while others have not: who
// lags behind in a collective has nothing in flight. Where all have, their kernels are
// just long.
func (g *gang) halved() bool {
	for _, m := range g.members {
		if m.takesPart() && !m.open && !m.draining {
			return true
		}
	}
	return false
}

// candidate is who is to have the card next of a level, or nil: the best one, where
// that is one of a gang the best one whose gang can have all of its cards at once, or
// nearly.
func (s *Scheduler) candidate(b *board, lower bool, now Time) *tenant {
	s.choice++
	for {
		best := b.best(lower, now, s.choice)
		if best == nil || best.gang == nil || s.feasible(best, now) && best.timely(now) {
			return best
		}
		best.gang.passed = s.choice
	}
}

// feasible tells whether the gang of a tenant who is the best on its card is so on its
// other ones, and those who hold them are owed less, or may hold them no longer, and not in
// the least time of a lease, or soon will be. As a gang that waits is owed more and more, its
// time comes.
func (s *Scheduler) feasible(t *tenant, now Time) bool {
	g := t.gang
	pressed := g.pressing
	g.pressing = true
	for _, m := range g.members {
		if m == t || m.open || !m.takesPart() {
			continue
		}
		h := m.board.holder
		if m.board.best(m.lower, now, 0) != m || h != nil && m.board.yields(h, m, now) > now+s.config.Least {
			g.pressing = false
			return false
		}
		if h != nil && !pressed {
			m.board.due = 0
		}
	}
	return true
}

// yields is when the holder makes room for one of a gang.
func (b *board) yields(h, m *tenant, now Time) Time {
	if h.withheld || !h.wants || h.lower && !m.lower {
		return now
	}
	end := max(b.overtaken(h, m, now), h.since+b.least(h))
	if !h.roomy() {
		end = min(end, max(now, h.turn+b.turnOf(h)))
	}
	return end
}

// prompt is a difference between times to drain that is not worth two steps.
const prompt = 100 * time.Microsecond

// timely tells whether the holder of the tenant's card is to be closed for the gang now: not while another
// card of the gang will take much longer to be free. Its holder is closed first, and the others go on
// until it has drained. How long kernels take can be guessed from what went before, when
// they end cannot.
func (t *tenant) timely(now Time) bool {
	if h := t.board.holder; h == nil || !h.wants {
		return true
	}
	most := 2*t.board.clearing(t, now) + prompt
	return !slices.ContainsFunc(t.gang.members, func(m *tenant) bool {
		return m != t && !m.open && m.takesPart() && m.board.clearing(m, now) > most
	})
}

// clearing is how long it takes, most likely, from when the card is taken from others until it is free for the tenant.
func (b *board) clearing(t *tenant, now Time) time.Duration {
	var most time.Duration
	for _, o := range b.tenants {
		if o != t && (o == b.holder && o.wants || o.draining && now < o.patience(b.config)) && (o.lower == t.lower || t.lower) {
			most = max(most, o.slow)
		}
	}
	return most
}

// together tells whether the gang takes more than one card.
func (g *gang) together() bool {
	n := 0
	for _, m := range g.members {
		if m.takesPart() {
			n++
		}
	}
	return n > 1
}

// assemble the gang of a tenant that is to have its card now: open the other members, and
// tell whether that can be done already.
func (s *Scheduler) assemble(t *tenant, now Time) bool {
	g, complete := t.gang, true
	for _, m := range g.members {
		if m == t || m.open || !m.takesPart() {
			continue
		}
		if m.board.holder != nil {
			m.board.due, complete = 0, false // the holder was let go on until now
		}
		complete = complete && m.board.clear(m, now)
	}
	if !complete {
		return false
	}
	for _, m := range g.members {
		if m != t && !m.open && m.takesPart() {
			s.open(m, now)
			m.board.due = 0
		}
	}
	g.pressing = false
	g.opened()
	return true
}
