// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// Keeper is implemented by a Usage that knows how much a card holds for no
// living process, in bytes, at most: memory of which there is a descriptor. Unless it
// is exact, it is worth nothing when a process took or freed memory meanwhile.
// Where it is not known, nothing that may be kept is ever given away.
type Keeper interface {
	Kept(ctx context.Context, id card.UUID) (bytes uint64, exact bool, err error)
}

// kept is what the card may hold of a share although the processes that it was
// charged to have ended, because there are descriptors of it. It has a slot of the
// ledger for itself, in which all of it comes together, and that is in the roster. The
// amount here is what counts: it is written to the ledger again and again.
type kept struct {
	slot  uint32
	nonce uint64
	// bytes; zero: nothing is kept, and there is no slot.
	bytes uint64
}

// has tells whether the slot is taken for what is kept.
func (k kept) has(slot int) bool { return k.bytes > 0 && int(k.slot) == slot }

// slots is how many slots have to be looked at. The caller has card.mu.
func (s *served) slots() uint32 {
	slots := uint32(len(s.attached)) //nolint:gosec // at most MaxSlots
	if s.kept.bytes > 0 {
		slots = max(slots, s.kept.slot+1)
	}
	return slots
}

// freeSlot is the lowest one that nobody has. The caller has card.mu.
func (s *served) freeSlot() uint32 {
	for i := range s.slots() {
		if (int(i) >= len(s.attached) || s.attached[i] == nil) && !s.kept.has(int(i)) {
			return i
		}
	}
	return s.slots()
}

// vacate clears the slot of a process that has ended. Of what the process was
// charged with the share stays charged with what there may be descriptors of, though
// not with more than the card holds for no process, if that is known. What others
// have taken over was added to their slots before. The caller has card.mu.
func (s *served) vacate(slot uint32, most uint64) {
	w := &s.ledger.words.Slot[slot]
	left := min(w.Exported.Load(), w.Charge(), most)
	if left > 0 && s.kept.bytes == 0 {
		s.card.keeps++
		s.kept = kept{slot: slot, nonce: newNonce(), bytes: left}
		s.roster.keep(slot, s.kept.nonce, left)
		w.Keep(left, s.kept.nonce)
		return
	}
	if left > 0 {
		s.keep(wire.Add(s.kept.bytes, left))
	}
	s.ledger.words.Moves.Add(1)
	w.Clear()
	s.roster.leave(slot)
}

// keep sets how much is kept. What was kept before is not forgotten by a process
// that sums meanwhile: an amount that moves here is taken away elsewhere later. The
// caller has card.mu.
func (s *served) keep(bytes uint64) {
	if bytes > s.kept.bytes {
		s.card.keeps++
		if s.kept.bytes == 0 {
			s.kept.slot, s.kept.nonce = s.freeSlot(), newNonce()
		}
	}
	if s.kept.bytes == 0 && bytes == 0 {
		return
	}
	if s.kept.bytes = bytes; bytes > 0 {
		s.roster.keep(s.kept.slot, s.kept.nonce, bytes)
		s.countSlots()
		s.writeKept()
		return
	}
	if s.ledger != nil {
		s.ledger.words.Slot[s.kept.slot].Clear()
	}
	s.roster.leave(s.kept.slot)
	s.countSlots()
}

// writeKept tells the ledger what is kept, if there is a ledger and something is.
// The caller has card.mu.
func (s *served) writeKept() {
	if s.ledger != nil && s.kept.bytes > 0 {
		s.ledger.words.Slot[s.kept.slot].Keep(s.kept.bytes, s.kept.nonce)
	}
}

// keepUnknown charges the share with all that it may hold: processes ended while
// no arbiter ran, and with them the ledger that told what there may be descriptors of.
// The next reading says how much it can be. The caller has card.mu.
func (s *served) keepUnknown() {
	if limit := limitOf(s.document); len(s.departed) > 0 && limit != wire.NoLimit {
		s.keep(max(s.kept.bytes, limit))
	}
	for _, slot := range s.departed {
		if !s.kept.has(int(slot)) {
			s.roster.leave(slot)
		}
	}
	s.departed = nil
}

// settleKept ends the waiting of new processes once it was tried to measure what
// is kept.
func (s *served) settleKept() {
	defer close(s.settled)
	ctx, cancel := context.WithTimeout(s.ctx, measureLimit)
	defer cancel()
	before := s.card.look(nil)
	r, err := s.card.meter.read(ctx)
	if err != nil {
		klog.FromContext(s.ctx).Error(err, "Cannot measure what is left of processes that ended while no arbiter ran: nothing is allocated until that is known", "share", s.key)
		return
	}
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	s.card.lowerKept(before, r)
}

// mostKept is what the card holds for nobody by a reading, at most, and NoLimit
// where that is not known. The caller has mu.
func (c *hostedCard) mostKept(before outlook, r *reading) uint64 {
	for pid := range c.byPID {
		if _, seen := before.seen[pid]; !seen && !before.but[pid] && r.used[pid] > 0 {
			return wire.NoLimit // it has come since, and may have taken over what it is not charged with yet
		}
	}
	if r.exact {
		return r.kept
	}
	for pid, was := range before.seen {
		if !quiet(was.states, c.states(pid)) {
			return wire.NoLimit
		}
	}
	return r.kept
}

// mostKeptAfter is mostKept for who does not have mu.
func (c *hostedCard) mostKeptAfter(before outlook, r *reading) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mostKept(before, r)
}

// keepGivenUp charges the share with what a living process has given up, where the
// card holds it for nobody now: drivers need not count memory of which there is only
// a descriptor for any process. It comes before the process's own charge
// falls. The caller has mu.
func (s *served) keepGivenUp(a *attachment, settle, most uint64) {
	given := min(settle, a.words().Exported.Load(), less(most, s.kept.bytes))
	if given == 0 {
		return
	}
	if s.kept.bytes == 0 && s.freeSlot() >= wire.MaxSlots {
		return // a thousand processes: there is no slot to keep it in
	}
	s.keep(wire.Add(s.kept.bytes, given))
	s.ledger.words.Moves.Add(1)
}

// lowerKept takes away what shares are charged with beyond what the card holds for
// nobody, as it was found after that look. Of several shares that have something
// kept, none is charged with more than all. The caller has mu.
func (c *hostedCard) lowerKept(before outlook, r *reading) {
	most := c.mostKept(before, r)
	if most == wire.NoLimit || before.keeps != c.keeps {
		return // not known, or from before the latest was added
	}
	for _, s := range c.shares {
		if !s.ended {
			s.keep(min(s.kept.bytes, most))
		}
	}
}

// lookAtKept lowers what is kept, where something is, for somebody who needs the
// room.
func (c *hostedCard) lookAtKept(ctx context.Context) {
	c.mu.Lock()
	keeps := c.isKeeping()
	c.mu.Unlock()
	if !keeps {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	before := c.look(nil)
	r, err := c.meter.read(ctx)
	if err == nil && c.raiseAll(before, r, false) {
		c.mu.Lock()
		c.lowerKept(before, r)
		c.mu.Unlock()
	}
}

// isKeeping tells whether a share is charged with something that is kept. The
// caller has mu.
func (c *hostedCard) isKeeping() bool {
	for _, s := range c.shares {
		if s.kept.bytes > 0 {
			return true
		}
	}
	return false
}

// mayKeep tells whether it is of interest how much the card holds for nobody. The
// caller has mu.
func (c *hostedCard) mayKeep() bool {
	if c.isKeeping() {
		return true
	}
	for pid := range c.byPID {
		for _, a := range c.of(pid) {
			if a.words().Exported.Load() > 0 {
				return true
			}
		}
	}
	return false
}
