// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"slices"
	"sync"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// frame in bytes is the unit in which cards hand out memory.
const frame = 2 << 20

// hostedCard is a card that has shares.
type hostedCard struct {
	id    card.UUID
	meter *meter
	// estimate in bytes is what a context takes, before anything was measured.
	estimate uint64
	watched  watched

	// mu guards the pages and attachments of all shares on the card: what the
	// card holds for a process is spread over all of its slots.
	mu sync.Mutex
	// shares by key, and attachments by PID, guarded by mu.
	shares map[share.Key]*served
	byPID  map[int][]*attachment
	// keeps counts how often a share was charged with something that is kept.
	keeps uint64
	// dead are to be reaped, by somebody who does so while reaping is set.
	dead    []dead
	reaping bool
}

// attachment is one slot of a ledger and the process that has it. All but the
// facts is guarded by the card's mu.
type attachment struct {
	share *served
	slot  uint32
	nonce uint64
	process

	// demand is what the process wants of the card's compute; nil until it was given the
	// page, and once the attachment is no more. The scheduling thread reads it without mu, so
	// that thread unmaps it, or somebody who has waited until it knows the share no more.
	demand *page[wire.Demand]
	// conn is nil where the process has no connection at present, such as one
	// that closed all its descriptors.
	conn *connection
	// missing until a process that an earlier arbiter knew has come back.
	missing bool
	// foreign is a slot whose process still uses a ledger of an earlier
	// arbiter, of which only a measurement is known.
	foreign bool
	// removed is set when the slot was freed.
	removed bool
	// measured is set once it was measured what the process's first context takes.
	measured bool
	// measures counts the changes of implicit.
	measures uint32
	// above is how often in a row a reading was below implicit.
	above int
}

// words is the attachment's slot. The caller has the card's mu.
func (a *attachment) words() *wire.Slot { return &a.share.ledger.words.Slot[a.slot] }

// of gives the attachments of a process, but for those whose ledger is not known
// yet. The caller has mu.
func (c *hostedCard) of(pid int) []*attachment {
	all := c.byPID[pid]
	unknown := func(a *attachment) bool { return a.share.ledger == nil }
	if slices.ContainsFunc(all, unknown) {
		return slices.DeleteFunc(slices.Clone(all), unknown)
	}
	return all
}

func (c *hostedCard) add(a *attachment) { c.byPID[a.pid] = append(c.byPID[a.pid], a) }

func (c *hostedCard) remove(a *attachment) {
	rest := slices.DeleteFunc(c.byPID[a.pid], func(other *attachment) bool { return other == a })
	if c.byPID[a.pid] = rest; len(rest) == 0 {
		delete(c.byPID, a.pid)
	}
}

// state is what must stay the same around a reading for it to say what a
// process holds besides what it asked for.
type state struct {
	committed uint64
	inflight  uint32
	changes   uint32
	measures  uint32
}

// states of a process, slot by slot. The caller has mu.
func (c *hostedCard) states(pid int) []state {
	attachments := c.of(pid)
	all := make([]state, 0, len(attachments))
	for _, a := range attachments {
		w := a.words()
		all = append(all, state{w.Committed.Load(), w.Inflight.Load(), w.Changes.Load(), a.measures})
	}
	return all
}

// quiet tells whether a process changed nothing between two looks, and was not
// about to.
func quiet(before, after []state) bool {
	busy := func(s state) bool { return s.inflight != 0 }
	return slices.Equal(before, after) && !slices.ContainsFunc(after, busy)
}

// committed is what a process asked for by name. The caller has mu.
func (c *hostedCard) committed(pid int) uint64 {
	sum := uint64(0)
	for _, a := range c.of(pid) {
		sum = wire.Add(sum, a.words().Committed.Load())
	}
	return sum
}

// raise charges a process with what is unexplained, where it was charged with
// less. The caller has mu.
func (c *hostedCard) raise(pid int, unexplained uint64) {
	attachments := c.of(pid)
	for _, a := range attachments {
		unexplained = less(unexplained, a.words().Implicit.Load())
	}
	if unexplained > 0 && len(attachments) > 0 {
		a := attachments[0]
		a.setImplicit(wire.Add(a.words().Implicit.Load(), unexplained))
	}
}

// explain sets what the card holds for a process besides what it asked for.
// One slot, of whose reserve settle is about to be taken, may be charged with
// that much more than before: the room was its share's. What the process's slots
// in other places have already is left there, and the rest goes to the one. The
// caller has mu.
func (c *hostedCard) explain(into *attachment, used, settle uint64) {
	rest := less(used, c.committed(into.pid))
	own := min(rest, wire.Add(into.words().Implicit.Load(), settle))
	rest -= own
	left := map[*attachment]uint64{}
	for _, a := range c.of(into.pid) {
		if a != into {
			left[a] = min(rest, a.words().Implicit.Load())
			rest -= left[a]
		}
	}
	// The one first: in between, the slots say too much and never too little.
	into.setImplicit(own + rest)
	for a, bytes := range left {
		a.setImplicit(bytes)
	}
}

func (a *attachment) setImplicit(bytes uint64) {
	if w := a.words(); w.Implicit.Load() != bytes {
		w.Implicit.Store(bytes)
	}
	a.measures++
}

// settle takes what was an estimate from reserve. It comes after implicit was
// set: in between, the slot says too much and never too little.
func (a *attachment) settle(bytes uint64) {
	w := a.words()
	for {
		reserve := w.Reserve.Load()
		if w.Reserve.CompareAndSwap(reserve, less(reserve, bytes)) {
			return
		}
	}
}

// less is a - b, or 0.
func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}
