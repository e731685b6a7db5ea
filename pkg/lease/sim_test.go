// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	us = time.Microsecond
	ms = time.Millisecond

	// What hand-overs cost: the arbiter's reaction to a bell, and the tenant's to
	// a changed word.
	bellDelay = 15 * us
	wakeDelay = 15 * us
	// idleBefore wants is taken back.
	idleBefore = 300 * us
	window     = ms
)

// worker is one tenant of the simulated card: a process that launches kernels one
// after another, as its lease and its window allow, and thinks between them.
type worker struct {
	spec lease.Tenant
	// kernel is how long the next one takes, think how long the process waits after it
	// before it launches another one. Zero think is a stream that is never empty.
	kernel, think func() time.Duration
	// from and until the worker runs. until 0 is for ever.
	from, until lease.Time
	// sleeps until then: nothing is launched before.
	sleeps lease.Time
	// frozen processes neither launch nor answer from then on, 0 for never.
	frozen lease.Time

	// foretells that it has drained, so long before.
	foretells time.Duration

	// peers take part in each kernel: it does nothing but spin until all of them run it.
	peers []*worker
	// thread feeds this worker and others, one kernel to each in turn; fed are those
	// that this one got.
	thread []*worker
	fed    int

	grant    lease.Grant
	wants    bool
	queue    []time.Duration // in flight, the first one runs
	queued   time.Duration
	progress time.Duration // of the first one
	ready    lease.Time    // when the next launch can be made
	idle     lease.Time    // since when nothing is in flight
	closed   bool          // and has not said that it is drained
	waiting  lease.Time    // since when a launch waits, -1 if none does

	busy time.Duration
	done int
	wait []time.Duration // of each launch that had to
	took []time.Duration // from when each launch was wanted until the kernel's end
	made []lease.Time    // when those in flight were wanted
	log  []span
}

// span is a stretch of time in which a worker had the card, or that part of it.
type span struct {
	from, to lease.Time
	part     float64
}

type event struct {
	at lease.Time
	n  int
	do func()
}

// sim is cards, workers and a scheduler in virtual time.
type sim struct {
	t       *testing.T
	s       *lease.Scheduler
	now     lease.Time
	workers []*worker
	events  []event
	n       int
	next    lease.Time
	timers  int // decisions that were made because the time had come
}

func (m *sim) after(d time.Duration, do func()) {
	m.n++
	e := event{m.now + d, m.n, do}
	at, _ := slices.BinarySearchFunc(m.events, e, func(a, b event) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		return a.n - b.n
	})
	m.events = slices.Insert(m.events, at, e)
}

func tenant(key, uuid string, policy share.Policy, cores card.Percent) lease.Tenant {
	return lease.Tenant{
		Key: share.Key(key), Card: card.UUID(uuid), Policy: policy, Class: share.NoClass,
		Limits: share.Limits{Cores: cores}, Ceiling: 100,
	}
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func busy(spec lease.Tenant, kernel time.Duration) *worker {
	return &worker{spec: spec, kernel: always(kernel), think: always(0), waiting: -1}
}

func simulate(t *testing.T, workers ...*worker) *sim {
	t.Helper()
	m := &sim{t: t, s: lease.New(lease.Config{}), next: lease.Never}
	for _, w := range workers {
		m.add(w)
	}
	return m
}

func (m *sim) add(w *worker) {
	m.workers = append(m.workers, w)
	m.after(max(w.from-m.now, 0), func() {
		m.s.Put(m.now, w.spec)
		w.ready, w.idle = max(m.now, w.sleeps), m.now
		m.decide()
		m.launch(w)
		if w.sleeps > m.now && w.sleeps < lease.Never {
			m.after(w.sleeps-m.now, func() { m.launch(w) })
		}
	})
	if w.until > 0 {
		m.after(w.until-m.now, func() {
			w.queue, w.queued = nil, 0
			m.s.Remove(m.now, w.spec.Key)
			m.decide()
		})
	}
}

// decide asks the scheduler, and makes its changes known.
func (m *sim) decide() {
	d := m.s.Decide(m.now)
	m.next = d.Next
	require.Greater(m.t, d.Next, m.now)
	opened := false
	for _, c := range d.Changes {
		if c.State == lease.Closed {
			require.False(m.t, opened, "closings come first")
		} else {
			opened = true
		}
		for _, w := range m.workers {
			if w.spec.Key == c.Key {
				m.after(wakeDelay, func() { m.told(w, c.Grant) })
			}
		}
	}
}

func (w *worker) gone(now lease.Time) bool {
	return now < w.from || w.until > 0 && now >= w.until || w.frozen > 0 && now >= w.frozen
}

// spins tells whether what the worker runs waits for its peers.
func (w *worker) spins() bool {
	for _, p := range w.peers {
		if p.done < w.done || p.done == w.done && len(p.queue) == 0 {
			return true
		}
	}
	return false
}

func (m *sim) told(w *worker, g lease.Grant) {
	w.grant = g
	if w.gone(m.now) {
		return
	}
	w.closed = g.State == lease.Closed
	if w.closed && len(w.queue) > 0 && w.spec.Gang != "" {
		m.watch(w)
	}
	if w.closed && w.foretells > 0 && len(w.queue) > 0 {
		m.after(max(w.queued-w.progress-w.foretells, 0), func() { m.foretell(w) })
	}
	m.launch(w)
	m.settle(w)
}

// foretell that a closed worker has drained, where that is so soon. What it had is late where
// others are let in meanwhile.
func (m *sim) foretell(w *worker) {
	if left := w.queued - w.progress; w.closed && len(w.queue) > 0 && left <= 100*us {
		w.closed = false
		end := m.now + left
		m.ring(func() { m.s.Drains(m.now, w.spec.Key, end) })
	}
}

// watch a closed worker of a gang until it has drained.
func (m *sim) watch(w *worker) {
	m.after(3*window, func() {
		if w.closed && len(w.queue) > 0 {
			m.s.Stuck(m.now, w.spec.Key)
			m.decide()
			m.watch(w)
		}
	})
}

// ring tells the arbiter something, which decides a little later.
func (m *sim) ring(do func()) {
	m.after(bellDelay, func() { do(); m.decide() })
}

func (m *sim) want(w *worker, wants bool) {
	if w.wants != wants {
		w.wants = wants
		m.ring(func() { m.s.Wants(m.now, w.spec.Key, wants) })
	}
}

// launch what may be launched now.
func (m *sim) launch(w *worker) {
	if w.gone(m.now) {
		return
	}
	for m.now >= w.ready && w.isNext() {
		m.want(w, true)
		if w.grant.State == lease.Closed {
			if w.waiting < 0 {
				w.waiting = m.now
			}
			return
		}
		k := w.kernel()
		if len(w.queue) > 0 && w.queued-w.progress+k > window {
			return
		}
		if w.waiting >= 0 {
			w.wait = append(w.wait, m.now-w.waiting)
			w.waiting = -1
		}
		wanted := m.now
		if w.think() > 0 {
			wanted = w.ready
		}
		w.made = append(w.made, wanted)
		w.queue = append(w.queue, k)
		w.queued += k
		w.fed++
		for _, next := range w.thread {
			m.after(0, func() { m.launch(next) })
		}
		if w.think() > 0 {
			w.ready = lease.Never
		}
	}
}

// isNext tells whether the thread that feeds the worker, if there is one, has come to it.
func (w *worker) isNext() bool {
	for i, o := range w.thread {
		if o == w {
			before := w.thread[(i+len(w.thread)-1)%len(w.thread)].fed
			return before > w.fed || i == 0 && before == w.fed
		}
	}
	return true
}

// settle what the process says when nothing is in flight.
func (m *sim) settle(w *worker) {
	if len(w.queue) > 0 || w.gone(m.now) {
		return
	}
	if w.closed && w.wants {
		w.closed = false
		m.ring(func() { m.s.Drained(m.now, w.spec.Key) })
	}
	if w.wants && w.waiting < 0 && m.now-w.idle >= idleBefore && (w.grant.Contended || w.grant.State == lease.Closed) {
		m.want(w, false)
	}
}

// run until then: what is in flight on a card divides it.
func (m *sim) run(until lease.Time) {
	for m.now < until {
		at := min(until, m.next)
		if len(m.events) > 0 {
			at = min(at, m.events[0].at)
		}
		users := map[card.UUID]int64{}
		for _, w := range m.workers {
			if len(w.queue) > 0 {
				users[w.spec.Card]++
			}
		}
		for _, w := range m.workers {
			if len(w.queue) > 0 && !w.spins() {
				left := int64(w.queue[0] - w.progress)
				at = min(at, m.now+time.Duration(left*users[w.spec.Card]))
			}
		}
		at = max(at, m.now)
		for _, w := range m.workers {
			if len(w.queue) == 0 {
				continue
			}
			d := time.Duration(int64(at-m.now) / users[w.spec.Card])
			if !w.spins() {
				w.progress += d
			}
			w.busy += d
			part := 1 / float64(users[w.spec.Card])
			if n := len(w.log); n > 0 && w.log[n-1].to == m.now && w.log[n-1].part == part {
				w.log[n-1].to = at
			} else if at > m.now {
				w.log = append(w.log, span{m.now, at, part})
			}
		}
		m.now = at
		m.step()
	}
}

// step does what is due now.
func (m *sim) step() {
	for _, w := range m.workers {
		for len(w.queue) > 0 && w.progress >= w.queue[0] {
			w.progress -= w.queue[0]
			w.queued -= w.queue[0]
			w.queue = w.queue[1:]
			w.done++
			w.took = append(w.took, m.now-w.made[0])
			w.made = w.made[1:]
			if len(w.queue) == 0 {
				m.rest(w)
			}
			m.launch(w)
		}
	}
	for len(m.events) > 0 && m.events[0].at <= m.now {
		e := m.events[0]
		m.events = m.events[1:]
		e.do()
	}
	if m.next <= m.now {
		m.timers++
		m.decide()
	}
}

// rest: nothing is in flight any more.
func (m *sim) rest(w *worker) {
	w.progress = 0
	w.idle = m.now
	m.after(0, func() { m.settle(w) })
	m.after(idleBefore, func() { m.settle(w) })
	if think := w.think(); think > 0 {
		m.after(think, func() {
			w.ready = m.now
			m.launch(w)
		})
	}
}

// most that a worker got beyond its part in any window, which begins and ends when it has
// the card.
func (w *worker) most(part float64) time.Duration {
	most, least, sum := 0.0, 0.0, 0.0
	for _, s := range w.log {
		// The greatest excess of a window that ends with this span.
		least = min(least, sum-part*float64(s.from))
		sum += s.part * float64(s.to-s.from)
		most = max(most, sum-part*float64(s.to)-least)
	}
	return time.Duration(most)
}

// idle is how long nothing ran on the card of a worker in the last d, in percent.
func (m *sim) idle(d time.Duration) float64 {
	idle := 100.0
	for _, part := range m.shares(d) {
		idle -= part
	}
	return idle
}

// shares that each worker got of its card, in percent, over the last d.
func (m *sim) shares(d time.Duration) []float64 { return m.sharesUntil(m.now, d) }

func (m *sim) sharesUntil(end lease.Time, d time.Duration) []float64 {
	var parts []float64
	for _, w := range m.workers {
		sum := 0.0
		for _, s := range w.log {
			sum += s.part * float64(max(0, min(s.to, end)-max(s.from, end-d)))
		}
		parts = append(parts, 100*sum/float64(d))
	}
	return parts
}
