// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// A process that has the card while others wait, or is to drain, says all the time when its work
// ends, and once that has ended that it wants the card no more. One that is stopped (by a
// debugger, by whoever pauses its container) says nothing: it would keep the card, and not use it,
// for as long as it is stopped. That it is silent is what is looked at, and not whether the
// kernel calls it stopped: a frozen control group looks as if it slept, and who is not
// scheduled for so long uses the card no better.
const (
	// heedEvery is how often pages that are to change are looked at: many times less often than
	// they are written.
	heedEvery = 50 * time.Millisecond
	// mostSilences in a row, and the process wants nothing until its page changes. Looks are
	// counted instead of time, so that nobody is silent because the arbiter did not listen.
	mostSilences = 5
)

// sight is what a page of demand says.
type sight struct {
	drained, wants, waiting uint32
	ends                    time.Duration
	used, waited            uint64
}

// sightOf the page. It is read in this order: who wants nothing has nothing in flight.
func sightOf(d *wire.Demand) sight {
	return sight{
		drained: d.Drained.Load(), wants: d.Wants.Load(), waiting: d.Waiting.Load(),
		ends: said(&d.Ends), used: d.Used.Load(), waited: d.Waited.Load(),
	}
}

// see what the page says now. Any change is a sign of life.
func (a *asker) see() sight {
	if is := sightOf(a.demand); is != a.seen {
		a.seen, a.silences = is, 0
	}
	return a.seen
}

// silent: nothing has been heard of the process for so long that it does not count.
func (a *asker) silent() bool { return a.silences > mostSilences }

// isToSpeak tells whether a process that runs would change its page about now. What is in flight
// may take until it ends, and who has drained and waits has nothing to say.
func (t *tenant) isToSpeak(a *asker, now lease.Time) bool {
	switch {
	case a.seen.wants == 0 || a.seen.ends > now:
		return false
	case t.word&wire.LeaseState == wire.LeaseClosed:
		return !t.endedBy(a.seen.drained)
	}
	return t.word&wire.LeaseContended != 0
}

// heed looks at cards whose pages are to be looked at whoever rings.
func (c *compute) heed(logger klog.Logger, now lease.Time) {
	for _, l := range c.lanes {
		if l.heedAt() > now {
			continue
		}
		l.heeded = now
		for _, t := range l.tenants {
			c.look(t, now)
			if fell := t.countSilences(now); fell > 0 {
				logger.V(2).Info("Processes that keep others from the card say nothing, and do not count until they do", "share", t.Key, "processes", fell)
				c.look(t, now)
			}
		}
	}
}

// countSilences of processes that were just looked at, and tell how many have been silent for too
// long by now.
func (t *tenant) countSilences(now lease.Time) (fell int) {
	for i := range t.askers {
		if a := &t.askers[i]; !a.silent() && t.isToSpeak(a, now) {
			if a.silences++; a.silent() {
				fell++
			}
		}
	}
	return fell
}

// heedAt is when pages of the card are to be looked at, whoever rings: while anybody is waited for, and while
// anybody is silent. Who goes on where he was stopped may have rung before that.
func (l *lane) heedAt() lease.Time {
	if !l.awaited() && !l.hasSilent() {
		return forever
	}
	return l.heeded + heedEvery
}

func (l *lane) hasSilent() bool {
	for _, t := range l.tenants {
		if t.silent > 0 {
			return true
		}
	}
	return false
}
