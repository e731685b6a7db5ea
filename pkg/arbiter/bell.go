// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"sync/atomic"
	"time"
)

// How often a share is looked at because its processes ring, so that who rings
// without end costs a part of a core, and nobody's lease: so many times at once,
// and as often a second in the long run. A look at many processes counts for more.
const (
	lookBurst = 50
	lookEvery = 250 * time.Microsecond
	// togetherFactor times as often shares are looked at all together.
	togetherFactor = 2
	// processesPerLook are looked at for the price of one more.
	processesPerLook = 64
)

// bell is the word that the processes of a share ring when they want something. Its
// memory must stay mapped until silence has returned.
type bell struct {
	word *atomic.Uint32
	// seen is what the word was at the last look, and woken that it rang by a wake-up.
	seen  uint32
	woken bool
	// spent is the time at which all looks so far are paid for.
	spent time.Duration

	forward *forwarder // nil where the alarm waits for the word itself
}

// rung tells whether the share is to be looked at.
func (b *bell) rung() bool {
	return b.woken || b.word.Load() != b.seen || b.forward != nil && b.forward.woken.Load()
}

// hear takes note that the share is looked at now. It comes before the look: what
// is said later rings again.
func (b *bell) hear(now time.Duration, processes int) {
	b.woken = false
	if b.forward != nil {
		b.forward.woken.Store(false)
	}
	b.seen = b.word.Load()
	b.spent = max(b.spent, now) + lookEvery*time.Duration(1+processes/processesPerLook)
}

// mutedUntil is when the share may be looked at again.
func (b *bell) mutedUntil() time.Duration { return onGrid(b.spent - lookBurst*lookEvery) }

// onGrid is the time at which those are looked at who have to wait: all at once.
func onGrid(at time.Duration) time.Duration { return (at + lookEvery - 1).Truncate(lookEvery) }

// alarm is what the scheduling thread sleeps on: the bells of all shares, and a word
// that the rest of the arbiter rings.
type alarm struct {
	own atomic.Uint32
	// many: the kernel can wait for all of them at once.
	many bool
	// spent is the time at which all looks at any share so far are paid for.
	spent time.Duration
	// Waiters of the next sleep and the bells that they are for.
	waiters []waiter
	waited  []*bell
	direct  int
}

// ring wakes the thread.
func (a *alarm) ring() {
	a.own.Add(1)
	wakeAll(&a.own, futexPrivate)
}

// attach makes that a bell wakes the thread.
func (a *alarm) attach(word *atomic.Uint32) *bell {
	b := &bell{word: word, woken: true}
	if a.many && a.direct < maxWaiters-1 {
		a.direct++
	} else {
		b.forward = newForwarder(word, a)
	}
	return b
}

// silence ends what attach began.
func (a *alarm) silence(b *bell) {
	if b.forward == nil {
		a.direct--
		return
	}
	b.forward.end()
}

// heard takes note that shares were looked at because they rang.
func (a *alarm) heard(now time.Duration) { a.spent = max(a.spent, now) + lookEvery/togetherFactor }

// deafUntil is the time until which no bell is heard: that is past, unless many shares
// ring without end.
func (a *alarm) deafUntil(now time.Duration) time.Duration {
	if a.spent-now > lookBurst*lookEvery {
		return onGrid(now + 1)
	}
	return now
}

// begin starts the list of who wakes the thread. own was read before anything was
// looked at.
func (a *alarm) begin(own uint32) {
	a.waiters = append(a.waiters[:0], waitFor(&a.own, own, futexPrivate))
	a.waited = append(a.waited[:0], nil)
}

// await adds a bell to the list.
func (a *alarm) await(b *bell) {
	if b.forward == nil {
		a.waiters = append(a.waiters, waitFor(b.word, b.seen, 0))
		a.waited = append(a.waited, b)
	}
}

// sleep waits until somebody rings or the time has come.
func (a *alarm) sleep(until time.Duration) {
	if !a.many {
		waitOne(&a.own, uint32(a.waiters[0].value), futexPrivate, until) //nolint:gosec // it was one
		return
	}
	woken, err := waitAny(a.waiters, until)
	if err != nil { // never seen: the arguments are right, and the kernel knows the call
		waitOne(&a.own, uint32(a.waiters[0].value), futexPrivate, min(until, monotonic()+lookEvery)) //nolint:gosec // it was one
	}
	if woken > 0 {
		a.waited[woken].woken = true
	}
}

// forwarder waits for one bell on a thread of its own, and rings the alarm.
type forwarder struct {
	word  *atomic.Uint32
	woken atomic.Bool

	stop context.CancelFunc
	done chan struct{}
}

func newForwarder(word *atomic.Uint32, to *alarm) *forwarder {
	ctx, stop := context.WithCancel(context.Background())
	f := &forwarder{word: word, stop: stop, done: make(chan struct{})}
	go f.run(ctx, to, word.Load()) // read now, so that nothing from now on is missed
	return f
}

func (f *forwarder) run(ctx context.Context, to *alarm, seen uint32) {
	defer close(f.done)
	looks := newPace(lookBurst, float64(time.Second/lookEvery))
	for {
		waitOne(f.word, seen, 0, forever)
		if looks.wait(ctx); ctx.Err() != nil {
			return
		}
		seen = f.word.Load()
		f.woken.Store(true)
		to.ring()
	}
}

// end waits for the thread. The word is rung until it has noticed: a tenant may
// take back what was added.
func (f *forwarder) end() {
	f.stop()
	for {
		f.word.Add(1)
		wakeAll(f.word, 0)
		select {
		case <-f.done:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// forever is later than any time that clocks reach.
const forever = time.Duration(1) << 62
