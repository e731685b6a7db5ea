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
	pending chan []card.ProcessCompute
	asked   time.Time
	// before are the shares as they were when the card was read last, since when.
	before map[share.Key]nodeview.Share
	since  time.Time
	found  []finding
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
	case used := <-w.pending:
		w.pending = nil
		if used != nil {
			a.compareCompute(ctx, c, used, strangers)
		}
	default:
	}
	if now := time.Now(); w.pending == nil && now.Sub(w.asked) >= computeEvery {
		w.asked = now
		w.pending = make(chan []card.ProcessCompute, 1)
		pending := w.pending
		a.readings.Go(func() { pending <- a.readCompute(ctx, usage, c) })
	}
	return w.found
}

// readCompute gives what processes computed, nil where that is not known.
func (a *Arbiter) readCompute(ctx context.Context, usage ComputeUsage, c *hostedCard) []card.ProcessCompute {
	limited, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	used, err := usage.Computed(limited, c.id)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("It is not known what processes compute", "card", c.id, "reason", err.Error())
		return nil
	}
	return append([]card.ProcessCompute{}, used...)
}

// compareCompute finds shares whose processes computed for longer than they had
// the card since the last reading.
func (a *Arbiter) compareCompute(ctx context.Context, c *hostedCard, used []card.ProcessCompute, strangers []stranger) {
	w := &c.watched.compute
	if len(used) == 0 { // nothing to ask about
		w.before, w.found = nil, nil
		return
	}
	_, shares := a.leases(ctx)
	now := time.Now()
	before, since := w.before, w.since
	w.before, w.since, w.found = shares, now, nil
	passed := now.Sub(since)
	if before == nil || passed > 10*computeEvery {
		return
	}
	parts := make(map[int]float64, len(used))
	for _, p := range used {
		parts[p.PID] += p.Part
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range c.groups(strangers) {
		held, known := heldBy(group, before, shares)
		if !known {
			continue
		}
		f := c.computed(group, parts, strangers, passed)
		f.limit = uint64(held) //nolint:gosec // not negative
		if float64(f.used) > computeFactor*float64(held)+computeTolerance*float64(passed) {
			w.found = append(w.found, f)
		}
	}
}

// heldBy is how long some shares together had the card between two moments, where
// all of them were limited all the time.
func heldBy(group []share.Key, before, after map[share.Key]nodeview.Share) (held time.Duration, known bool) {
	for _, key := range group {
		was, had := before[key]
		is, has := after[key]
		if !had || !has || was.State == stateFree || is.State == stateFree || is.Held < was.Held {
			return 0, false
		}
		held += is.Held - was.Held
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
