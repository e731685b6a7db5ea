// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// compute divides the time of all cards among their shares. One goroutine, on a
// thread of its own, has everything below but for the queue, and the pages of
// demand: the rest of the arbiter tells it what to do by commands, which it runs in
// their order. It touches no lock that somebody else holds and waits for nothing but
// the alarm.
type compute struct {
	alarm alarm
	// queue has the newest command first.
	queue atomic.Pointer[command]
	// done is closed when the goroutine has ended.
	done chan struct{}
	// scheduling is how the thread runs, set before the first command.
	scheduling string
	// wakeups counts them.
	wakeups atomic.Uint64

	scheduler *lease.Scheduler
	tenants   map[share.Key]*tenant
	lanes     map[card.UUID]*lane
	// began is false before all shares that are there are known: until then each
	// would look as if it were alone. It is false again from when they go one by one.
	began bool
	ended bool
}

// command is something that the goroutine is to do.
type command struct {
	do   func(now lease.Time)
	next *command
}

const (
	// beatEvery is how often the beat is written while somebody waits for a card:
	// more often than promised, because threads are late now and then.
	beatEvery = wire.BeatEvery * 4 / 5
	// shortestSleep is a bound for errors of our own: a thread that runs in real
	// time must not spin.
	shortestSleep = 20 * time.Microsecond
	// mostRounds of decisions without sleep, for the same reason.
	mostRounds = 64
	// alonePeriod is the round of the timetable by which shares go on without an
	// arbiter.
	alonePeriod = 100 * time.Millisecond
)

func newCompute() *compute {
	return &compute{
		done: make(chan struct{}), scheduler: lease.New(lease.Config{Drain: drainLimit, Lead: wire.LeaseLead}), tenants: map[share.Key]*tenant{}, lanes: map[card.UUID]*lane{},
	}
}

// post has something done soon. Nothing is done after the goroutine has ended.
func (c *compute) post(do func(now lease.Time)) {
	next := &command{do: do}
	for {
		next.next = c.queue.Load()
		if c.queue.CompareAndSwap(next.next, next) {
			break
		}
	}
	c.alarm.ring()
}

// ask has something done, and waits for it: false where it is not done in time.
func (c *compute) ask(ctx context.Context, do func(now lease.Time)) bool {
	select {
	case <-c.soon(do):
		return true
	case <-c.done:
	case <-ctx.Done():
	}
	return false
}

// await has something done, and waits for it, or for the end of the goroutine.
func (c *compute) await(do func(now lease.Time)) {
	select {
	case <-c.soon(do):
	case <-c.done:
	}
}

// soon is post, and tells when it is done.
func (c *compute) soon(do func(now lease.Time)) <-chan struct{} {
	done := make(chan struct{})
	c.post(func(now lease.Time) {
		do(now)
		close(done)
	})
	return done
}

// begin starts to divide cards: all shares that are there are known.
func (c *compute) begin() { c.post(func(lease.Time) { c.began = true }) }

// freeze ends that: leases stay as they are, and shares may go.
func (c *compute) freeze() { c.post(func(lease.Time) { c.began = false }) }

// end ends the goroutine, and waits for it.
func (c *compute) end() {
	c.post(func(lease.Time) { c.ended = true })
	<-c.done
}

// start starts the goroutine. many: the kernel can wait for many futexes at once.
func (c *compute) start(ctx context.Context, many bool) {
	c.alarm.many = many
	started := make(chan struct{})
	go func() {
		defer close(c.done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		c.scheduling = hurry(ctx)
		close(started)
		c.run(ctx)
	}()
	<-started
}

// run does what is due until it is told to end.
func (c *compute) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		own := c.alarm.own.Load()
		c.obey()
		if c.ended {
			return
		}
		now := monotonic()
		c.listen(now)
		c.heed(logger, now)
		c.unstick(now)
		c.widen(now)
		next := forever
		if c.began {
			next = c.decide(logger, now)
		}
		next = min(next, c.beat(now))
		for _, l := range c.lanes {
			next = min(next, l.heedAt())
		}
		c.alarm.begin(own)
		deaf := c.alarm.deafUntil(now)
		for _, t := range c.tenants {
			next = min(next, t.stuckAt(), t.widensAt())
			if t.bell == nil {
				continue
			}
			if muted := max(t.bell.mutedUntil(), deaf); muted > now {
				next = min(next, muted)
			} else {
				c.alarm.await(t.bell)
			}
		}
		c.alarm.sleep(max(next, now+shortestSleep))
		c.wakeups.Add(1)
	}
}

// obey runs the commands that came, in their order.
func (c *compute) obey() {
	var first *command
	for newest := c.queue.Swap(nil); newest != nil; {
		newest, newest.next, first = newest.next, first, newest
	}
	for ; first != nil; first = first.next {
		first.do(monotonic())
	}
}

// listen looks at the shares whose bells rang.
func (c *compute) listen(now lease.Time) {
	rung := false
	for _, t := range c.tenants {
		if t.bell == nil || !t.bell.rung() || t.bell.mutedUntil() > now {
			continue
		}
		rung = true
		t.bell.hear(now, len(t.askers))
		c.look(t, now)
	}
	if rung {
		c.alarm.heard(now)
	}
}

// decide does what the scheduler says, until that is nothing more, and gives the
// time at which to ask again.
func (c *compute) decide(logger klog.Logger, now lease.Time) lease.Time {
	for range mostRounds {
		decision := c.scheduler.Decide(now)
		again := false
		for _, change := range decision.Changes {
			t := c.tenants[change.Key]
			if t == nil {
				continue
			}
			c.change(t, change.Grant, now)
			logger.V(6).Info("A lease changes", "share", change.Key, "word", t.word)
		}
		// Whoever is closed and has nothing in flight does not ring any more.
		for _, change := range decision.Changes {
			if t := c.tenants[change.Key]; t != nil && change.State == lease.Closed {
				again = c.look(t, now) || again
			}
		}
		for _, p := range c.scheduler.Preemptions() {
			if t := c.tenants[p.Key]; t != nil {
				t.latency.Add(p.Latency)
			}
		}
		if !again {
			return decision.Next
		}
	}
	return now + shortestSleep
}

// beat tells who waits that there is an arbiter, and gives the time at which to do
// so again. Cards that nobody waits for need none.
func (c *compute) beat(now lease.Time) lease.Time {
	next := forever
	for _, l := range c.lanes {
		if !l.awaited() {
			continue
		}
		if now-l.beaten >= beatEvery {
			l.beat(now)
		}
		next = min(next, l.beaten+beatEvery)
	}
	return next
}

// lane is a card, with the shares that are on it.
type lane struct {
	tenants []*tenant
	// beaten is when the beat was written, heeded when pages were looked at although nobody rang.
	beaten, heeded lease.Time
}

// awaited tells whether somebody waits for the card, or uses it while others wait.
func (l *lane) awaited() bool {
	for _, t := range l.tenants {
		if t.wants && (t.word&wire.LeaseContended != 0 || t.word&wire.LeaseState == wire.LeaseClosed) {
			return true
		}
	}
	return false
}

func (l *lane) beat(now lease.Time) {
	l.beaten = now
	for _, t := range l.tenants {
		t.grant.Beat.Store(uint64(now)) //nolint:gosec // nanoseconds since boot
	}
}

// schedule tells the shares of the card when they may launch while there is no
// arbiter. In between nobody may.
func (l *lane) schedule() {
	all := make([]lease.Tenant, 0, len(l.tenants))
	for _, t := range l.tenants {
		all = append(all, t.Tenant)
	}
	turns := lease.Timetable(all, alonePeriod)
	for _, t := range l.tenants {
		turn := turns[t.Key]
		start, length := uint64(turn.Start), uint64(turn.Length) //nolint:gosec // not negative
		if t.grant.AlonePeriod.Load() != 0 && t.grant.AloneStart.Load() == start && t.grant.AloneLength.Load() == length {
			continue
		}
		t.grant.AlonePeriod.Store(0)
		t.grant.AloneStart.Store(start)
		t.grant.AloneLength.Store(length)
	}
	for _, t := range l.tenants {
		t.grant.AlonePeriod.Store(uint64(alonePeriod))
	}
}

// hurry lets this thread run before others where that is allowed, and says how.
func hurry(ctx context.Context) string {
	logger := klog.FromContext(ctx)
	// The lowest real-time priority is above everything that is not real time.
	realTime := unix.SchedAttr{Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}
	err := unix.SchedSetAttr(0, &realTime, 0)
	if err == nil {
		return "fifo"
	}
	const better = -15
	nice := unix.SchedAttr{Policy: unix.SCHED_NORMAL, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Nice: better}
	if niceErr := unix.SchedSetAttr(0, &nice, 0); niceErr == nil {
		logger.Info("Compute is divided without real-time priority", "reason", err.Error())
		return "nice"
	}
	logger.Info("Compute is divided with the priority of everybody: leases are late while the node is busy. It needs CAP_SYS_NICE", "reason", err.Error())
	return "normal"
}
