// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/metrics"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// Action is what the watchdog does about a share that holds more than it may.
type Action string

// Actions, each with all that is done by those before it.
const (
	// ActionEvent tells people.
	ActionEvent Action = "event"
	// ActionWithhold lets the share allocate and launch nothing until it holds no
	// more than it may.
	ActionWithhold Action = "withhold"
	// ActionKill ends the processes that are too much, after another grace time.
	ActionKill Action = "kill"
)

// Actions from the mildest on.
func Actions() []Action { return []Action{ActionEvent, ActionWithhold, ActionKill} }

// Watchdog says what is watched for.
type Watchdog struct {
	// Interval between two looks at a card.
	Interval time.Duration
	// Grace is how long somebody may hold too much.
	Grace time.Duration
	// Tolerance in bytes may be held above the limit.
	Tolerance uint64
	Action    Action
	// Uncharged: what shares compute beyond their leases is told, and not charged to them.
	Uncharged bool
}

const (
	// sweepInterval is how often attached processes are looked at that no
	// connection tells of.
	sweepInterval = time.Second
	// longestBackoff is the longest pause after a card could not be read.
	longestBackoff = 10 * time.Second
)

// watchCards looks at all cards with shares until ctx ends.
func (a *Arbiter) watchCards(ctx context.Context) {
	ticker := time.NewTicker(a.config.Watchdog.Interval)
	defer ticker.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		sweep := time.Since(swept) >= sweepInterval
		if sweep {
			swept = time.Now()
		}
		for _, c := range a.allCards() {
			if sweep {
				c.sweep(ctx)
			}
			a.watchCard(ctx, c)
		}
	}
}

// allCards are those with shares. Of the others nothing is to be known.
func (a *Arbiter) allCards() []*hostedCard {
	a.mu.Lock()
	defer a.mu.Unlock()
	var cards []*hostedCard
	for _, c := range a.hosted {
		c.mu.Lock()
		if len(c.shares) > 0 {
			cards = append(cards, c)
		} else {
			c.watched.standing = nil
		}
		c.mu.Unlock()
	}
	return cards
}

// watchCard looks at one card.
func (a *Arbiter) watchCard(ctx context.Context, c *hostedCard) {
	w := &c.watched
	if time.Now().Before(w.notBefore) {
		return
	}
	logger := klog.FromContext(ctx).WithValues("card", c.id)
	limited, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	before := c.look(nil)
	reading, err := c.meter.read(limited)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if w.backoff == 0 {
			logger.Error(err, "The watchdog cannot read a card")
			a.events.Node(reasonUnreadable, "nobody sees whether processes hold more of a card than their shares allow: "+err.Error())
		}
		w.backoff = min(max(2*w.backoff, a.config.Watchdog.Interval), longestBackoff)
		w.notBefore = time.Now().Add(w.backoff)
		c.note(nil, nil, false)
		return
	}
	if w.backoff != 0 {
		logger.Info("The watchdog reads a card again")
		w.backoff = 0
	}
	c.correct(before, reading)
	strangers := c.strangers(ctx, a.sharesMount, reading.used)
	c.note(reading.used, strangers, true)
	found := c.findings(reading.used, strangers, a.config.Watchdog.Tolerance)
	a.judge(ctx, c, append(found, a.computeFindings(ctx, c, strangers)...))
}

// correct charges processes with what the card holds for them besides what they
// asked for. It takes what was too much away only when it was so twice in a row,
// and after all others were charged with what they may have taken over. What is kept
// falls to what the card holds for nobody.
func (c *hostedCard) correct(before outlook, r *reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reading := r.used
	final := true
	for pid, was := range before.seen {
		if len(c.of(pid)) == 0 {
			continue
		}
		still := quiet(was.states, c.states(pid))
		unexplained := less(reading[pid], max(was.committed, c.committed(pid)))
		if less(unexplained, c.reserve(pid)) <= c.implicit(pid) {
			continue // what is reserved is charged already
		}
		if final = final && still; still {
			c.raise(pid, less(unexplained, c.reserve(pid)))
			c.of(pid)[0].above = 0
		}
	}
	if final {
		c.lowerKept(before, r)
	}
	for pid, was := range before.seen {
		attachments := c.of(pid)
		if !final || len(attachments) == 0 || !quiet(was.states, c.states(pid)) {
			continue
		}
		first := attachments[0]
		if less(reading[pid], c.committed(pid)) >= c.implicit(pid) || c.reserve(pid) != 0 {
			first.above = 0
		} else if first.above++; first.above >= 2 {
			c.explain(first, reading[pid], 0)
			first.above = 0
		}
	}
}

// sweep looks at processes that execute another program without an end of their
// connection having told so: a child may have it, or there is none any more.
func (c *hostedCard) sweep(ctx context.Context) {
	type swept struct {
		*attachment
		ledger    fileID
		connected bool
	}
	var all []swept
	c.mu.Lock()
	for pid := range c.byPID {
		for _, a := range c.of(pid) {
			all = append(all, swept{a, a.share.ledger.id, a.conn != nil})
		}
	}
	c.mu.Unlock()
	for _, a := range all {
		if ctx.Err() != nil {
			return
		}
		if a.connected {
			facts, err := statOf(a.pid)
			if err == nil && !facts.ending && facts.started == a.started && facts.image != a.image {
				a.share.abandon(a.attachment, true)
			}
		} else if a.look(a.ledger) == replaced {
			a.share.abandon(a.attachment, false)
		}
	}
}

// stranger is a process that holds memory of a card and is attached to no share
// of it.
type stranger struct {
	pid     int
	started uint64
	bytes   uint64
	// shares of the card that its container was given; none where that is not
	// known.
	shares []share.Key
}

// strangers finds processes that use the card and are not attached.
func (c *hostedCard) strangers(ctx context.Context, shares mount, reading map[int]uint64) []stranger {
	var found []stranger
	c.mu.Lock()
	for pid, bytes := range reading {
		if _, attached := c.byPID[pid]; !attached && bytes > 0 {
			found = append(found, stranger{pid: pid, bytes: bytes})
		}
	}
	c.mu.Unlock()
	found = slices.DeleteFunc(found, func(s stranger) bool {
		facts, err := statOf(s.pid)
		return err != nil || facts.ending
	})
	known := make(map[int]container, len(found))
	for i := range found {
		s := &found[i]
		facts, err := statOf(s.pid)
		if err != nil {
			continue
		}
		s.started = facts.started
		in, is := c.watched.containers[s.pid]
		if !is || in.started != s.started {
			in = container{started: s.started}
			in.shares, err = sharesOf(s.pid, shares)
			if err != nil {
				klog.FromContext(ctx).V(4).Info("It is not known which container a process is in", "pid", s.pid, "reason", err.Error())
			}
		}
		known[s.pid] = in
		c.mu.Lock()
		for _, key := range in.shares {
			if _, here := c.shares[key]; here && !slices.Contains(s.shares, key) {
				s.shares = append(s.shares, key)
			}
		}
		c.mu.Unlock()
	}
	c.watched.containers = known
	slices.SortFunc(found, func(a, b stranger) int { return a.pid - b.pid })
	return found
}

// container is what a process that started at that time has in its mounts.
type container struct {
	started uint64
	shares  []share.Key
}

// watched is what the watchdog remembers of a card. Its own goroutine has all
// but the figures, which the card's mu guards.
type watched struct {
	backoff   time.Duration
	notBefore time.Time
	standing  map[string]*standing
	// containers of strangers, by PID.
	containers map[int]container
	compute    watchedCompute

	figures metrics.CardUse
}

// note keeps figures for the metrics.
func (c *hostedCard) note(reading map[int]uint64, strangers []stranger, readable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := metrics.CardUse{Card: c.id, Readable: readable, Processes: len(reading)}
	for _, bytes := range reading {
		f.Used = wire.Add(f.Used, bytes)
	}
	for _, s := range strangers {
		if len(s.shares) == 0 {
			f.Unattributed = wire.Add(f.Unattributed, s.bytes)
		}
	}
	c.watched.figures = f
}
