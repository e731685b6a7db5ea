// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math"
	"time"

	"github.com/tranche-dra/tranche/pkg/share"
)

// passes over the cards that one decision takes at most: what gangs do on one
// card can change what is right on another, which a next decision would find as well.
const passes = 4

// soon is the least time to the next decision.
const soon = 20 * time.Microsecond

// Decide what is to be done. The slice of changes is good until the next call.
func (s *Scheduler) Decide(now Time) Decision {
	now = s.at(now)
	if len(s.gangs) > 0 {
		for _, b := range s.boards {
			b.account(now)
		}
	}
	s.closing, s.changes = s.closing[:0], s.changes[:0]
	for _, b := range s.boards {
		b.seen = false
		for _, t := range b.tenants {
			if t.lingers != 0 && t.lingers <= now {
				s.want(t, false)
			}
		}
	}
	for range passes {
		if !s.pass(now) {
			break
		}
	}
	next := Never
	for _, b := range s.boards {
		if b.seen {
			late := b.due <= now
			b.due = b.next(now)
			if late {
				b.due = now + soon
			}
			s.tell(b, now)
		}
		next = min(next, b.due)
	}
	s.closing = append(s.closing, s.changes...)
	return Decision{Changes: s.closing, Next: next}
}

// pass over the cards that something is due on, and tell whether there was one.
func (s *Scheduler) pass(now Time) bool {
	found := false
	for _, b := range s.boards {
		b.look = b.due <= now
		if b.look {
			b.account(now)
			b.seen, b.due, found = true, Never, true
		}
	}
	for _, b := range s.boards {
		if b.look {
			s.review(b, now)
		}
	}
	for _, b := range s.boards {
		if b.look {
			s.fill(b, now)
		}
	}
	return found
}

// review whether the lease of the card's holder is over.
func (s *Scheduler) review(b *board, now Time) {
	b.free(s, now)
	s.distrust(b, now)
	h := b.holder
	if h == nil {
		return
	}
	upper := s.candidate(b, false, now)
	switch {
	case h.withheld:
		s.shut(h, nil, now)
	case h.lower && upper != nil:
		s.shut(h, upper, now)
	case !h.wants:
		if upper != nil || !h.roomy() || s.candidate(b, true, now) != nil {
			s.shut(h, nil, now)
		}
	case now >= b.end(h, now):
		best := s.candidate(b, h.lower, now)
		switch {
		case h.roomy() && (best == nil || !best.stuck() && h.lag() > best.lag()+same):
			h.turn = now
		case best != nil || h.ceiling < 1:
			s.shut(h, best, now)
		}
	}
}

// free opens the card to a tenant who is alone there and may use all of it.
func (b *board) free(s *Scheduler, now Time) {
	for _, t := range b.tenants {
		free := len(b.tenants) == 1 && t.ceiling == 1 && !t.withheld
		if free == t.free {
			continue
		}
		t.free = free
		s.touch(t)
		if free {
			b.holder, t.open = nil, false
			s.settle(t, now)
			b.taken(t, now)
			continue
		}
		// Somebody came, and finds the card in use.
		if b.holder == nil && !t.withheld {
			b.holder, t.open = t, true
			t.since, t.turn = now, now
			continue
		}
		t.open = true
		s.shut(t, nil, now)
	}
}

// best of those of a level who could have the card and do not, or nil. The lower
// level is out of the question while the upper one uses the card, and so are gangs
// that were passed over in this choice.
func (b *board) best(lower bool, now Time, choice int) *tenant {
	if lower && !b.lent(now) {
		return nil
	}
	var best *tenant
	for _, t := range b.tenants {
		if t.lower != lower || t.open || !t.ready() || choice > 0 && t.gang != nil && t.gang.passed == choice {
			continue
		}
		if best == nil || t.before(best) {
			best = t
		}
	}
	return best
}

// lent tells whether the lower level may have the card.
func (b *board) lent(now Time) bool {
	for _, t := range b.tenants {
		if t.lower || t.free || t.withheld {
			continue
		}
		if t.wants && (t.open || t.ready()) || !t.wants && t.gaps.until > now {
			return false
		}
	}
	return true
}

// contended tells whether others than t wait for the card, or would if they had room.
func (b *board) contended(t *tenant) bool {
	for _, o := range b.tenants {
		if o != t && o.counts() && !o.free {
			return true
		}
	}
	return false
}

// end of the lease of a holder who goes on to want the card, as far as it is known
// now.
func (b *board) end(h *tenant, now Time) Time {
	end := Never
	if h.ceiling < 1 {
		end = h.turn + b.turnOf(h)
	}
	if h.lower && !b.lent(now) {
		return end // it goes on while the upper level's gang waits for another card, and none of its own level may come
	}
	for _, t := range b.tenants {
		if t.lower != h.lower || t.open || !t.ready() {
			continue
		}
		end = min(end, h.turn+b.turnOf(h))
		if t.urgent() && (t.gang == nil || t.timely(now)) {
			end = min(end, max(b.overtaken(h, t, now), h.since+b.least(h)))
		}
	}
	return end
}

// least time that the holder has the card for, whoever of its level wakes. One that was opened to end
// what it has in flight has all of its turn: in less it may launch as much as it ends, and be stuck again.
func (b *board) least(h *tenant) time.Duration {
	if h.jam().unwind {
		return b.config.ShortestQuantum
	}
	return b.config.Least
}

// overtaken is when a tenant who waits is owed more than the holder.
func (b *board) overtaken(h, t *tenant, now Time) Time {
	if behind := h.lag() - t.lag(); behind > 0 && !t.stuck() {
		return now + Time(math.Ceil(behind*h.part))
	}
	return now
}

// fill a card that nobody holds.
func (s *Scheduler) fill(b *board, now Time) {
	if b.holder != nil {
		return
	}
	best := s.candidate(b, false, now)
	if best == nil {
		best = s.candidate(b, true, now)
	}
	if best != nil && b.clear(best, now) && (best.gang == nil || s.assemble(best, now)) {
		s.open(best, now)
	}
}

// clear tells whether nobody's work in flight keeps the tenant from the card.
func (b *board) clear(t *tenant, now Time) bool {
	for _, o := range b.tenants {
		if o != t && o.draining && (o.lower == t.lower || t.lower) && now < o.patience(b.config) && !t.trusts(o) {
			return false
		}
	}
	return true
}

// open the card to the tenant.
func (s *Scheduler) open(t *tenant, now Time) {
	b := t.board
	if t.draining {
		t.stopped = Preempted{}
		j := t.jam()
		stuck := j.stuck
		s.settle(t, now)
		j.stuck = stuck // which it is not until it has drained
	}
	t.own.opened()
	b.holder, t.open, t.woke, t.roused = t, true, false, t.woke
	t.since, t.turn = now, now
	if b.leaver != nil {
		t.since, t.turn = max(now, b.left), max(now, b.left)
	}
	b.taken(t, now)
}

// taken counts the times that the card changes hands.
func (b *board) taken(t *tenant, now Time) {
	if b.previous != t.Key {
		b.previous = t.Key
		b.switches++
	}
	b.since = now
}

// shut the lease of a holder, for somebody or for nobody, and those of its gang.
func (s *Scheduler) shut(t, by *tenant, now Time) {
	together := t.wants && t.gang != nil
	s.shutOne(t, by, now)
	if !together {
		return
	}
	t.gang.shutAt(now)
	for _, m := range t.gang.members {
		if m.open {
			m.board.account(now)
			s.shutOne(m, by, now)
			m.board.due = 0
		}
	}
}

func (s *Scheduler) shutOne(t, by *tenant, now Time) {
	t.open = false
	if t.board.holder == t {
		t.board.holder = nil
	}
	if !t.wants || t.lingers != 0 {
		return
	}
	t.draining, t.shut, t.asked = true, now, now
	t.own.shutAt(now)
	if by != nil {
		t.usage.Preemptions++
		t.stopped, t.stoppedAt = Preempted{Key: t.Key, For: by.Key}, now
		if by.urgent() || t.lower && !by.lower {
			t.stoppedAt = by.asked
		}
	}
}

// next time at which the card is to be looked at if nothing happens.
func (b *board) next(now Time) Time {
	next := Never
	h := b.holder
	if h != nil && h.wants {
		next = b.end(h, now)
	}
	b.served = b.lent(now)
	waits, drains := false, b.drains()
	for _, t := range b.tenants {
		if t.lingers != 0 {
			next = min(next, t.lingers)
		}
		if h != nil && t.draining && t.trusted() {
			next = min(next, t.shut+quickDrain)
		}
		if t.free || t.withheld {
			continue
		}
		if t.wants && !t.open {
			waits = true
			if h == nil && !drains && t.ready() && (!t.lower || b.served) {
				// It is kept for a gang that may be passed over before it has its cards.
				next = min(next, now+b.config.Least)
			}
		}
		if at := t.roomAt(now); !t.open && at > now && (t.wants || t.Class == share.Online) {
			next = min(next, at)
		}
		if !t.wants && t.gaps.until > now {
			next = min(next, t.gaps.until)
		}
	}
	for _, t := range b.tenants {
		if end := t.patience(b.config); waits && t.draining && end > now {
			next = min(next, end)
		}
	}
	return max(next, now+soon)
}

// drains tells whether anybody does.
func (b *board) drains() bool {
	for _, t := range b.tenants {
		if t.draining {
			return true
		}
	}
	return false
}

// tell the tenants what has changed for them.
func (s *Scheduler) tell(b *board, now Time) {
	for _, t := range b.tenants {
		grant := b.grant(t)
		if grant == t.told {
			continue
		}
		if t.told.Tell && grant.State == Closed && t.wants && !t.draining {
			// It has launched something, or may have.
			t.draining, t.shut = true, now
			t.jam().shutAt(now)
		}
		t.told = grant
		if grant.State == Closed {
			s.closing = append(s.closing, Change{Key: t.Key, Grant: grant})
		} else {
			s.changes = append(s.changes, Change{Key: t.Key, Grant: grant})
		}
	}
}

func (b *board) grant(t *tenant) Grant {
	switch {
	case t.free:
		return Grant{State: Free}
	case t.open:
		return Grant{State: Open, Contended: t.ceiling < 1 || b.contended(t)}
	case t.Class == share.Online && !t.wants && !t.withheld && t.roomy() && b.holder != nil && b.holder.lower:
		return Grant{State: Open, Tell: true}
	}
	return Grant{}
}
