// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
)

// ComputeUsage is implemented by a Usage whose cards say what processes compute.
type ComputeUsage interface {
	// Computed gives what part of the time since the last call for that card
	// processes had work on it. Who computes nothing may be left out. It is as late
	// and as coarse as cards are: a second is the shortest time between two calls.
	Computed(ctx context.Context, id card.UUID) ([]card.ProcessCompute, error)
}

const (
	// computeEvery is how often a card is asked what its processes compute.
	computeEvery = time.Second
	// A share may have computed for so much longer than it had the card: what the
	// card says is an average over some other second, in whole percents.
	computeTolerance = 0.1  // of the time
	computeFactor    = 1.25 // of what it held
)

// watchedCompute is what the watchdog's goroutine remembers of a card's compute.
type watchedCompute struct {
	// pending is a reading that has not come yet: in a driver that hangs it never does.
	pending chan *computeReading
	asked   time.Time
	// since is when the card was read last, before are the shares as they were then, or earlier:
	// when nobody computes, they are not asked for.
	since  time.Time
	before map[share.Key]nodeview.Share
	idle   bool // nobody computed before the last reading
	// charges are what shares were charged with since before, overs what their processes
	// computed without having been charged for it, by the name of the finding that it can be.
	charges map[share.Key]time.Duration
	overs   map[string]over
	found   []finding
}

// computeReading is what processes computed until then, and the shares as they were then, nil
// where they were not asked for.
type computeReading struct {
	used   []card.ProcessCompute
	at     time.Time
	shares map[share.Key]nodeview.Share
}

// computeFindings compares what processes compute with how long their shares had the
// card. It waits for nothing.
func (a *Arbiter) computeFindings(ctx context.Context, c *hostedCard, strangers []stranger) []finding {
	w := &c.watched.compute
	usage, can := c.meter.usage.(ComputeUsage)
	if !can {
		return nil
	}
	select {
	case r := <-w.pending:
		w.pending = nil
		if r != nil {
			a.compareCompute(ctx, c, r, strangers)
		}
	default:
	}
	if now := time.Now(); w.pending == nil && now.Sub(w.asked) >= computeEvery {
		w.asked = now
		w.pending = make(chan *computeReading, 1)
		pending, idle := w.pending, w.idle && w.before != nil
		a.readings.Go(func() { pending <- a.readCompute(ctx, usage, c, idle) })
	}
	return w.found
}

// readCompute gives what processes computed, nil where that is not known. Both times are to be
// the same: the shares are asked for at once. Where nobody computed, and nobody did before, they are left
// alone, for the scheduling thread sleeps.
func (a *Arbiter) readCompute(ctx context.Context, usage ComputeUsage, c *hostedCard, idle bool) *computeReading {
	limited, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	used, err := usage.Computed(limited, c.id)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("It is not known what processes compute", "card", c.id, "reason", err.Error())
		return nil
	}
	r := &computeReading{used: used, at: time.Now()}
	if len(used) > 0 || !idle {
		_, r.shares = a.leases(limited)
	}
	return r
}

// compareCompute finds shares whose processes computed for longer than they had
// the card since the last reading, and charges them.
func (a *Arbiter) compareCompute(ctx context.Context, c *hostedCard, r *computeReading, strangers []stranger) {
	w := &c.watched.compute
	passed := r.at.Sub(w.since)
	w.since, w.idle, w.found = r.at, len(r.used) == 0, nil
	if r.shares == nil {
		return
	}
	before, charges, overs := w.before, w.charges, w.overs
	w.before, w.charges, w.overs = r.shares, map[share.Key]time.Duration{}, map[string]over{}
	if before == nil || passed > 10*computeEvery || anyLeft(c.id, before, r.shares) {
		return
	}
	parts := make(map[int]float64, len(r.used))
	for _, p := range r.used {
		parts[p.PID] += p.Part
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range c.groups(strangers) {
		held, known := heldBy(group, before, r.shares, charges)
		if !known {
			continue
		}
		f := c.computed(group, parts, strangers, passed)
		f.limit = uint64(held) //nolint:gosec // not negative
		if float64(f.used) > computeFactor*float64(held)+computeTolerance*float64(passed) {
			w.found = append(w.found, f)
		}
		sum := overs[f.name()]
		a.charge(ctx, c, group, sum.add(time.Duration(min(f.used, uint64(passed))), held, passed)) //nolint:gosec // not negative
		w.overs[f.name()] = sum
	}
}

// anyLeft tells whether a share of the card ended between two moments: another one may have been alone
// then, and free for a while.
func anyLeft(id card.UUID, before, after map[share.Key]nodeview.Share) bool {
	for key, s := range before {
		if _, there := after[key]; !there && s.Card == id {
			return true
		}
	}
	return false
}

// heldBy is how long some shares together had the card between two moments, without what they were
// charged with meanwhile, where all of them were limited all the time.
func heldBy(group []share.Key, before, after map[share.Key]nodeview.Share, charges map[share.Key]time.Duration) (held time.Duration, known bool) {
	for _, key := range group {
		was, had := before[key]
		is, has := after[key]
		if !had || !has || was.State == stateFree || is.State == stateFree || is.Held < was.Held+charges[key] {
			return 0, false
		}
		held += is.Held - was.Held - charges[key]
	}
	return held, true
}

// computed is how long the processes of some shares computed in the time that passed.
// The caller has mu.
func (c *hostedCard) computed(group []share.Key, parts map[int]float64, strangers []stranger, passed time.Duration) finding {
	f := finding{kind: ComputeWithoutLease, shares: group}
	add := func(pid int, started uint64, attached bool) {
		if time := uint64(parts[pid] * float64(passed)); time > 0 {
			f.holders = append(f.holders, holder{pid: pid, started: started, bytes: time, attached: attached})
			f.used += time
		}
	}
	for pid, attachments := range c.byPID {
		if slices.Contains(group, attachments[0].share.key) {
			add(pid, attachments[0].started, true)
		}
	}
	for _, s := range strangers {
		if len(s.shares) > 0 && slices.Contains(group, s.shares[0]) {
			add(s.pid, s.started, false)
		}
	}
	// Those first who do not use the runtime.
	slices.SortFunc(f.holders, func(a, b holder) int {
		switch {
		case a.attached && !b.attached:
			return 1
		case b.attached && !a.attached:
			return -1
		}
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), a.pid-b.pid)
	})
	return f
}

// computeMessage says what was found.
func (f finding) computeMessage(id card.UUID) string {
	var who []string
	for _, h := range f.holders {
		text := fmt.Sprintf("%d (%s", h.pid, roundedTime(h.bytes))
		if pod := podOf(h.pid); pod != "" {
			text += ", pod " + pod
		}
		who = append(who, text+")")
	}
	return fmt.Sprintf("processes of this share compute on card %s for longer than the share has it: %s where it had the card for %s: %s",
		id, roundedTime(f.used), roundedTime(f.limit), strings.Join(who, ", "))
}

func roundedTime(ns uint64) time.Duration {
	return time.Duration(min(ns, uint64(forever))).Round(time.Millisecond)
}
