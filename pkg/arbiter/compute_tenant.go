// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"slices"
	"time"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

const (
	// stuckAfter is by how much work in flight may be late before it is asked whether it
	// can end at all: a few windows, in which none of it ended. After drainLimit others
	// have the card anyway.
	stuckAfter = 4 * shareWindow
	drainLimit = 100 * time.Millisecond
)

// tenant is a share as the scheduling thread sees it.
type tenant struct {
	lease.Tenant
	id    share.ID
	claim string // the claim's UID
	grant *wire.Grant
	lane  *lane
	// bell is nil until the share has a ledger.
	bell   *bell
	askers []asker

	// wants and busy, the number of processes that want, as they were at the last look.
	wants bool
	busy  int
	// running is how many processes have something in flight, or may have, as the scheduler knows it.
	running int
	// waits: threads of it wait for the lease.
	waits bool
	// silent is how many processes do not count because they say nothing.
	silent int
	// withheld by the watchdog; mute is withheld as well: none but silent processes want the card.
	withheld, mute bool
	// word of the lease as it was written last. alone is since when it says that nobody else
	// wants the card, forever where it does not.
	word  uint32
	alone lease.Time
	// window of work that may be in flight of it.
	window time.Duration
	// closed is the first word since it was open.
	closed uint32
	// draining since: closed, and not known to have nothing in flight. ends is when it
	// should have ended, by the processes' word at the last look. late is when to see
	// whether it can, which was put off once to wait for that. ended is what had by then.
	draining          bool
	since, ends, late lease.Time
	putOff            bool
	ended             progress

	latency nodeview.Histogram
}

// progress of processes whose work in flight ends: what they used, and how many have something
// in flight. It only tells whether there was any.
type progress struct {
	used      uint64
	undrained int
}

// asker is one process that may want the card.
type asker struct {
	of     *attachment // as its name, it is not looked at
	demand *wire.Demand
	// seen at the last look, silences since that changed.
	seen     sight
	silences int
}

// tenantOf is a share as its share.json describes it.
func tenantOf(d cdi.ShareDocument) lease.Tenant {
	return lease.Tenant{
		Key: d.Key, Card: d.Card.UUID, Policy: d.Policy, Class: d.Class, Limits: d.Limits, Ceiling: d.BurstCeiling, Whole: d.Whole,
	}
}

// put takes a share on, or takes what has changed of it.
func (c *compute) put(d cdi.ShareDocument, grant *wire.Grant, now lease.Time) {
	t := c.tenants[d.Key]
	if t == nil {
		l := c.lanes[d.Card.UUID]
		if l == nil {
			l = &lane{}
			c.lanes[d.Card.UUID] = l
		}
		word := firstWord(now)
		t = &tenant{id: d.Share().ID, claim: d.Claim.UID, grant: grant, lane: l, word: word, alone: forever, closed: word}
		grant.Lease.Store(word)
		wakeAll(&grant.Lease, 0)
		c.tenants[d.Key] = t
		l.tenants = append(l.tenants, t)
	}
	t.Tenant = tenantOf(d)
	for _, each := range t.lane.tenants {
		each.bound(now)
	}
	c.putGang(t.claim, now)
	t.lane.schedule()
	t.lane.beat(now)
}

// putGang tells the scheduler of the shares of a claim: those on several cards open
// together. Offline ones are a gang of their own: online work waits for none.
func (c *compute) putGang(claim string, now lease.Time) {
	var members []*tenant
	cards := map[string]map[card.UUID]bool{}
	for _, t := range c.tenants {
		if t.claim != claim {
			continue
		}
		members = append(members, t)
		if cards[t.gangName()] == nil {
			cards[t.gangName()] = map[card.UUID]bool{}
		}
		cards[t.gangName()][t.Card] = true
	}
	slices.SortFunc(members, func(a, b *tenant) int { return cmp.Compare(a.Key, b.Key) })
	for _, t := range members {
		t.Gang = ""
		if len(cards[t.gangName()]) > 1 {
			t.Gang = t.gangName()
		}
		c.scheduler.Put(now, t.Tenant)
	}
}

func (t *tenant) gangName() string {
	if t.Class == share.Offline {
		return t.claim + "/offline"
	}
	return t.claim
}

// remove forgets a share, and ends the lease where the share itself has ended.
func (c *compute) remove(key share.Key, ended bool, now lease.Time) {
	t := c.tenants[key]
	if t == nil {
		return
	}
	if t.bell != nil {
		c.alarm.silence(t.bell)
	}
	c.scheduler.Remove(now, key)
	delete(c.tenants, key)
	l := t.lane
	if l.tenants = slices.DeleteFunc(l.tenants, func(other *tenant) bool { return other == t }); len(l.tenants) == 0 {
		delete(c.lanes, t.Card)
	}
	if ended {
		c.change(t, lease.Grant{State: lease.Closed}, now)
		l.schedule()
	}
	c.putGang(t.claim, now)
}

// join adds a process, or gives one another page.
func (c *compute) join(key share.Key, of *attachment, demand *wire.Demand, ledger *wire.Ledger, now lease.Time) {
	t := c.tenants[key]
	if t == nil {
		return
	}
	if t.bell == nil {
		t.bell = c.alarm.attach(&ledger.Bell)
	}
	t.askers = append(slices.DeleteFunc(t.askers, func(a asker) bool { return a.of == of }), asker{of: of, demand: demand})
	c.look(t, now)
}

// leave forgets a process: nothing of it is in flight, and it wants nothing.
func (c *compute) leave(key share.Key, of *attachment, now lease.Time) {
	t := c.tenants[key]
	if t == nil {
		return
	}
	t.askers = slices.DeleteFunc(t.askers, func(a asker) bool { return a.of == of })
	c.look(t, now)
}

// withhold stops a share, or lets it go on. Its flags say so already.
func (c *compute) withhold(key share.Key, withheld bool, now lease.Time) {
	t := c.tenants[key]
	if t == nil {
		return
	}
	t.withheld = withheld
	c.scheduler.Withhold(now, key, t.withheld || t.mute)
	if t.word&wire.LeaseState == wire.LeaseClosed {
		c.change(t, lease.Grant{State: lease.Closed}, now) // so that who waits reads the flags
	}
}

// look reads what the processes of a share say, and tells the scheduler what is new:
// whether anything is. Any of it may be a lie, which is the liar's loss.
func (c *compute) look(t *tenant, now lease.Time) (told bool) {
	busy, running, waits := 0, 0, false
	t.ends, t.silent = 0, 0
	left := now // when nothing will be in flight any more
	for i := range t.askers {
		is := t.askers[i].see()
		switch {
		case is.wants == 0:
			continue
		case t.askers[i].silent():
			t.silent++
			continue
		}
		busy++
		waits = waits || is.waiting != 0
		if !t.endedBy(is.drained) {
			running++
			t.ends = max(t.ends, is.ends)
		} else if is.ends <= now+wire.LeaseLead {
			left = max(left, is.ends)
		}
	}
	t.waits = waits
	draining := running > 0
	if wants := busy > 0; wants != t.wants {
		t.wants, told = wants, true
		c.scheduler.Wants(now, t.Key, wants)
	}
	if mute := busy == 0 && t.silent > 0; mute != t.mute {
		// Who goes on as if he had asked already is to find the lease closed, lest he launch unheard.
		t.mute, told = mute, true
		c.scheduler.Withhold(now, t.Key, t.withheld || t.mute)
	}
	if t.busy != busy {
		t.busy = busy
		t.bound(now)
	}
	c.count(t, running, now)
	switch {
	case t.draining && !draining:
		t.draining, told = false, true
		c.scheduler.Drains(now, t.Key, left)
	case !t.draining && draining && t.word&wire.LeaseState == wire.LeaseClosed:
		// It was to have drained, and has not.
		t.draining, told = true, true
		c.scheduler.Lags(now, t.Key)
	}
	return told
}

// count the processes that the hardware gives turns where work of others is in flight: of a share that drains
// those that have drained already have none.
func (c *compute) count(t *tenant, running int, now lease.Time) {
	if t.running != running {
		t.running = running
		c.scheduler.Processes(now, t.Key, running)
	}
}

// endedBy tells whether a process that named this word has nothing in flight: it is
// one of those since the lease was closed.
func (t *tenant) endedBy(word uint32) bool {
	return t.word&wire.LeaseState == wire.LeaseClosed && word&wire.LeaseState == wire.LeaseClosed && word-t.closed <= t.word-t.closed
}

// progress so far.
func (t *tenant) progress() progress {
	var p progress
	for _, a := range t.askers {
		is := sightOf(a.demand)
		p.used += is.used
		if is.wants != 0 && !t.endedBy(is.drained) {
			p.undrained++
		}
	}
	return p
}

// firstWord of a lease is closed. Processes come back with a word of the arbiter before, which would be taken
// for one of this arbiter's if both counted from nought. Counted from the time it is past: no lease
// changes that often.
func firstWord(now lease.Time) uint32 {
	return uint32(now/(50*time.Microsecond)) * wire.LeaseCount //nolint:gosec // it wraps, after hours
}

// change makes a lease known to the processes of the share.
func (c *compute) change(t *tenant, to lease.Grant, now lease.Time) {
	word := (t.word &^ (wire.LeaseCount - 1)) + wire.LeaseCount
	switch to.State {
	case lease.Open:
		word |= wire.LeaseOpen
	case lease.Free:
		word |= wire.LeaseFree
	case lease.Closed:
		if t.word&wire.LeaseState != wire.LeaseClosed {
			t.closed, t.draining, t.since, t.late, t.putOff = word, true, now, now+stuckAfter, false
		}
	}
	if to.State == lease.Open && to.Contended {
		word |= wire.LeaseContended
	}
	if to.State == lease.Open && to.Tell {
		word |= wire.LeaseTell
	}
	if to.State != lease.Closed {
		t.draining = false
		c.count(t, t.busy, now)
	}
	t.lane.beat(now)
	t.word = word
	t.judgeAlone(now)
	if t.draining {
		t.ended = t.progress()
	}
	t.grant.Lease.Store(word)
	wakeAll(&t.grant.Lease, 0)
}

// stuckAt is when to see whether the work in flight of the share can end.
func (t *tenant) stuckAt() lease.Time {
	if !t.draining {
		return forever
	}
	return t.late
}

// unstick tells the scheduler of shares that do not drain while threads of theirs wait,
// those of other shares of their gang included: what is in flight may wait for what
// was not launched any more, as in a collective that was launched by half.
func (c *compute) unstick(now lease.Time) {
	for _, t := range c.tenants {
		if t.stuckAt() > now {
			continue
		}
		c.look(t, now)
		before := t.ended
		t.ended = t.progress()
		switch {
		case !t.draining:
			continue
		case t.ended != before:
			t.late = now + stuckAfter // it goes on, and what is left had to wait for that
			continue
		case t.ends > now && !t.putOff:
			t.late, t.putOff = t.ends+stuckAfter, true // kernels are long
			continue
		case t.waits || c.gangWaits(t.Gang, now):
			c.scheduler.Stuck(now, t.Key)
		}
		if t.late = now + stuckAfter; t.late > t.since+drainLimit {
			t.late = now + drainLimit // others had to be let in, and it has a chance now and then
		}
	}
}

// gangWaits tells whether threads of any share of the gang wait.
func (c *compute) gangWaits(gang string, now lease.Time) bool {
	for _, t := range c.tenants {
		if gang != "" && t.Gang == gang {
			if c.look(t, now); t.waits {
				return true
			}
		}
	}
	return false
}
