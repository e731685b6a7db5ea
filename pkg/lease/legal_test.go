// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// world calls a scheduler in any order, and checks what it says each time.
type world struct {
	t       *rapid.T
	s       *lease.Scheduler
	now     lease.Time
	next    lease.Time
	grants  map[share.Key]lease.Grant
	present map[share.Key]bool
	// charged with what they computed beyond their leases, at some time.
	charged map[share.Key]bool
}

func newWorld(t *rapid.T) *world {
	return &world{
		t: t, s: lease.New(lease.Config{}), next: lease.Never,
		grants: map[share.Key]lease.Grant{}, present: map[share.Key]bool{}, charged: map[share.Key]bool{},
	}
}

var keys = []share.Key{"a", "b", "c", "d", "e", "f"}

func anyTenant(t *rapid.T, key share.Key) lease.Tenant {
	return lease.Tenant{
		Key:    key,
		Card:   rapid.SampledFrom([]card.UUID{"x", "x", "x", "y", "z"}).Draw(t, "card"),
		Gang:   rapid.SampledFrom([]string{"", "", "g", "h"}).Draw(t, "gang"),
		Policy: rapid.SampledFrom(share.Policies()).Draw(t, "policy"),
		Class:  rapid.SampledFrom(share.Classes()).Draw(t, "class"),
		Limits: share.Limits{
			Cores:        card.Percent(rapid.SampledFrom([]int{-5, 0, 5, 20, 30, 50, 100, 300}).Draw(t, "cores")),
			OfflineCores: card.Percent(rapid.SampledFrom([]int{0, 5, 20, 50, 100}).Draw(t, "offline cores")),
		},
		Ceiling: card.Percent(rapid.SampledFrom([]int{0, 10, 50, 100}).Draw(t, "ceiling")),
	}
}

// step makes one call of any kind.
func (w *world) step() {
	key := rapid.SampledFrom(keys).Draw(w.t, "key")
	switch rapid.IntRange(0, 16).Draw(w.t, "call") {
	case 0, 1:
		w.s.Put(w.now, anyTenant(w.t, key))
		w.present[key] = true
	case 2:
		w.s.Remove(w.now, key)
		delete(w.present, key)
		delete(w.grants, key)
	case 3, 4, 5:
		w.s.Wants(w.now, key, true)
	case 6, 7:
		w.s.Wants(w.now, key, false)
	case 8, 9:
		w.s.Drained(w.now, key)
	case 10:
		w.s.Withhold(w.now, key, rapid.Bool().Draw(w.t, "withheld"))
	case 11:
		w.s.Stuck(w.now, key)
	case 12:
		w.s.Wants(w.now-time.Second, key, rapid.Bool().Draw(w.t, "late wants"))
	case 13:
		w.s.State(w.now - time.Hour)
	case 14:
		w.s.Drains(w.now, key, w.now+time.Duration(rapid.IntRange(-1000, 200).Draw(w.t, "left"))*us)
	case 15:
		w.s.Lags(w.now, key)
	case 16:
		w.s.Charge(w.now, key, time.Duration(rapid.IntRange(-10, 3000).Draw(w.t, "charge"))*ms)
		w.charged[key] = true
	}
}

// pass some time: a few nanoseconds, until something is due, or longer.
func (w *world) pass() {
	switch rapid.IntRange(0, 3).Draw(w.t, "time") {
	case 0:
		w.now += time.Duration(rapid.IntRange(0, 5000).Draw(w.t, "ns"))
	case 1:
		w.now += time.Duration(rapid.IntRange(0, 20000).Draw(w.t, "us")) * us
	case 2:
		if w.next < lease.Never {
			w.now = max(w.now, w.next)
		}
	case 3:
	}
}

// decide and check.
func (w *world) decide() lease.Decision {
	d := w.s.Decide(w.now)
	w.next = d.Next
	require.Greater(w.t, d.Next, w.now)
	opened := false
	for _, c := range d.Changes {
		require.True(w.t, w.present[c.Key], "only tenants that are there are told anything")
		require.NotEqual(w.t, c.Grant, w.grants[c.Key], "a change is one")
		if c.State == lease.Closed {
			require.False(w.t, opened, "closings come before openings")
		}
		opened = opened || c.State != lease.Closed
		w.grants[c.Key] = c.Grant
	}
	w.check(d)
	return d
}

func (w *world) check(d lease.Decision) {
	for _, c := range w.s.State(w.now) {
		holders, draining, wanting := 0, 0, 0
		var holder lease.TenantState
		rates := map[bool]float64{}
		for _, t := range c.Tenants {
			require.Equal(w.t, w.grants[t.Key], t.Grant, "what is true was told")
			if t.Grant.State != lease.Closed && !t.Grant.Tell {
				holders++
				holder = t
				require.False(w.t, t.Withheld)
				require.Equal(w.t, t.Key, c.Holder)
			}
			if t.Draining {
				draining++
				require.Equal(w.t, lease.Closed, t.Grant.State)
				require.True(w.t, t.Wants)
			}
			if t.Wants && !t.Withheld {
				if w.able(t) {
					wanting++
				}
				rates[t.Class == share.Offline] += t.Rate
				require.True(w.t, t.Rate > 0 || t.Class == share.Offline, "%+v", t)
			}
			if w.charged[t.Key] {
				require.GreaterOrEqual(w.t, t.Usage.Held+t.Usage.Throttled, t.Usage.Wanted)
			} else {
				require.Equal(w.t, t.Usage.Wanted, t.Usage.Held+t.Usage.Throttled)
			}
			require.GreaterOrEqual(w.t, t.Usage.Wanted, t.Usage.Held)
		}
		require.LessOrEqual(w.t, holders, 1)
		require.LessOrEqual(w.t, rates[false], 1+1e-9)
		require.LessOrEqual(w.t, rates[true], 1+1e-9)
		for _, t := range c.Tenants {
			if t.Grant.Tell {
				require.Equal(w.t, share.Online, t.Class)
				require.Equal(w.t, share.Offline, holder.Class)
			}
		}
		if holders == 0 && draining == 0 && wanting > 0 {
			require.Less(w.t, d.Next, lease.Never, "somebody waits for nothing on %s: %+v", c.Card, w.s.State(w.now))
		}
	}
}

func TestAnyOrderOfEventsEndsInALegalState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step()
			w.pass()
			if rapid.IntRange(0, 3).Draw(t, "decide") > 0 {
				w.decide()
			}
		}
		w.calm()
	})
}

// calm answers honestly from now on: whoever is closed drains at once, and everybody
// who wants the card goes on to. Each of them has it before long, unless nothing is left
// of it for him.
func (w *world) calm() {
	had := map[share.Key]bool{}
	start := w.now
	same := 0
	for w.now < start+300*time.Second {
		was := w.now
		d := w.decide()
		if same++; same > 100 {
			require.Fail(w.t, "does not come to rest", "%+v", w.s.State(w.now))
		}
		if d.Next < lease.Never && len(d.Changes) == 0 && w.now > start {
			w.now, same = d.Next, 0
			continue
		}
		missing, busy := "", false
		for _, c := range w.s.State(w.now) {
			upper := false
			for _, t := range c.Tenants {
				if t.Draining {
					w.s.Drained(w.now, t.Key)
					busy = true
				}
				if t.Grant.State != lease.Closed && !t.Grant.Tell {
					had[t.Key] = true
				}
				upper = upper || t.Wants && !t.Withheld && t.Class != share.Offline
			}
			for _, t := range c.Tenants {
				if t.Wants && !t.Withheld && !had[t.Key] && !(upper && t.Class == share.Offline) && w.able(t) {
					missing += fmt.Sprintf("%+v\n", t)
				}
			}
		}
		switch {
		case missing == "":
			return
		case busy:
		case d.Next == lease.Never:
			require.Fail(w.t, "waits for ever", missing)
		default:
			w.now = max(w.now, d.Next)
		}
		if w.now > was {
			same = 0
		}
	}
	require.Fail(w.t, "starves", "for %v: %+v", w.now-start, w.s.State(w.now))
}

// able tells whether the rest of the tenant's gang can have its cards at all.
func (w *world) able(t lease.TenantState) bool {
	if t.Gang == "" {
		return true
	}
	for _, c := range w.s.State(w.now) {
		upper, lower := false, false
		for _, o := range c.Tenants {
			counts := o.Wants && !o.Withheld
			upper = upper || counts && o.Class != share.Offline
			lower = lower || counts && o.Class == share.Offline && o.Gang == t.Gang
		}
		if upper && lower {
			return false
		}
	}
	return true
}
