// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/wire"
)

const (
	// measureLimit is how long a card may take to be read.
	measureLimit = time.Second
	// quietLimit is how long a measurement waits for a moment in which the
	// process changes nothing.
	quietLimit = 20 * time.Millisecond
	// reapLimit is how long a card may take to be read before the slot of a
	// process that has ended is freed all the same.
	reapLimit = 20 * time.Millisecond
)

// measure sets what the card holds for the process besides what it asked for,
// and takes settle from its reserve. A process that does not hold still is
// charged with the estimate, until the watchdog finds a quiet moment. A request
// of a connection that is not the attachment's any more changes nothing. givenUp
// says that what is settled was exported, and may be kept by a descriptor.
func (s *served) measure(from *connection, a *attachment, settle uint64, givenUp bool) (used, implicit uint64, status wire.Status) {
	c := s.card
	ctx, cancel := context.WithTimeout(s.ctx, measureLimit)
	defer cancel()
	for began := time.Now(); ; pause(ctx, time.Millisecond) {
		c.mu.Lock()
		before, committed := c.states(a.pid), c.committed(a.pid)
		c.mu.Unlock()
		reading, err := c.meter.read(ctx)
		if err != nil {
			klog.FromContext(s.ctx).V(2).Info("Cannot measure a process", "share", s.key, "pid", a.pid, "reason", err.Error())
			return 0, 0, wire.EMeasure
		}
		used = reading.used[a.pid]
		c.mu.Lock()
		if a.removed || s.ended || a.conn != from {
			c.mu.Unlock()
			return 0, 0, wire.EEnded
		}
		still := quiet(before, c.states(a.pid))
		last := time.Since(began) > quietLimit
		if givenUp && (still || last) {
			most := reading.kept
			if !reading.exact && !still {
				most = wire.NoLimit
			}
			s.keepGivenUp(a, min(settle, a.words().Reserve.Load()), most)
		}
		if still {
			s.learn(a, used)
			c.explain(a, used, min(settle, a.words().Reserve.Load()))
		} else if last {
			a.setImplicit(wire.Add(a.words().Implicit.Load(), min(settle, a.words().Reserve.Load())))
			// What neither a running call nor an estimate can explain is held for
			// certain: imported memory, say.
			c.raise(a.pid, less(less(used, max(committed, c.committed(a.pid))), c.reserve(a.pid)))
			still = true
		}
		if still {
			a.settle(settle)
			implicit = a.words().Implicit.Load()
			c.mu.Unlock()
			return used, implicit, wire.OK
		}
		c.mu.Unlock()
	}
}

// raiseOthers charges all processes but some with what the card holds for them,
// where they are charged with less. It comes before the charge of those falls: of
// memory that a process has exported, the card goes on to hold what others have
// imported. Amounts of processes are never lowered here; the watchdog does that. It
// returns what the card held for nobody after the call, at most.
func (c *hostedCard) raiseOthers(ctx context.Context, but map[int]bool, limit time.Duration) (kept uint64) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for began := time.Now(); ; pause(ctx, time.Millisecond) {
		before := c.look(but)
		if len(before.seen) == 0 && !before.mayKeep {
			return wire.NoLimit
		}
		reading, err := c.meter.read(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot measure the processes of a card", "card", c.id, "reason", err.Error())
			return wire.NoLimit
		}
		if c.raiseAll(before, reading, time.Since(began) > quietLimit/2) {
			return c.mostKeptAfter(before, reading)
		}
	}
}

// outlook is a card at the moment before a reading.
type outlook struct {
	seen map[int]seen
	but  map[int]bool // who was left out
	// keeps is the card's count of what was added to what is kept.
	keeps   uint64
	mayKeep bool
}

// seen is a process at the moment before a reading.
type seen struct {
	states    []state
	committed uint64
}

// look notes what all processes but some have asked for, before a reading.
func (c *hostedCard) look(but map[int]bool) outlook {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := outlook{seen: make(map[int]seen, len(c.byPID)), but: but, keeps: c.keeps, mayKeep: c.mayKeep()}
	c.meter.wanted.Store(o.mayKeep)
	for pid := range c.byPID {
		if !but[pid] {
			o.seen[pid] = seen{c.states(pid), c.committed(pid)}
		}
	}
	return o
}

// raiseAll charges processes with what a reading says, and tells whether that is
// final. Of one that was busy during the reading it is known only when it is
// taken for what it had asked for at most.
func (c *hostedCard) raiseAll(before outlook, reading *reading, last bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	final := true
	for pid, was := range before.seen {
		unexplained := less(reading.used[pid], max(was.committed, c.committed(pid)))
		switch {
		case unexplained == 0:
		case last || quiet(was.states, c.states(pid)):
			c.raise(pid, unexplained)
		case unexplained > c.implicit(pid):
			final = false
		}
	}
	return final
}

// implicit is what a process is charged with besides what it asked for. The
// caller has mu.
func (c *hostedCard) implicit(pid int) uint64 {
	sum := uint64(0)
	for _, a := range c.of(pid) {
		sum = wire.Add(sum, a.words().Implicit.Load())
	}
	return sum
}

// reserve is what a process estimates that its running calls take. The caller has
// mu.
func (c *hostedCard) reserve(pid int) uint64 {
	sum := uint64(0)
	for _, a := range c.of(pid) {
		sum = wire.Add(sum, a.words().Reserve.Load())
	}
	return sum
}
