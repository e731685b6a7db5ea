// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// played is a divided card in a time that passes, with processes that run.
type played struct {
	divided
	now lease.Time
	// stopped processes write nothing, and those that read the word of their lease do not know of it.
	stopped map[*wire.Demand]bool
}

func play(d divided) *played { return &played{divided: d, stopped: map[*wire.Demand]bool{}} }

// pass lets time pass. Processes that run have work without end, that is over as soon as
// their lease is.
func (p *played) pass(d time.Duration) {
	const step = 500 * time.Microsecond
	for end := p.now + d; p.now < end; p.now += step {
		for key, demands := range p.demands {
			for _, demand := range demands {
				if p.stopped[demand] || demand.Wants.Load() == 0 {
					continue
				}
				demand.Used.Add(1)
				demand.Ends.Store(0)
				demand.Waiting.Store(0)
				if p.state(key) == wire.LeaseClosed {
					demand.Waiting.Store(1)
					demand.Drained.Store(p.tenants[key].word)
				}
			}
		}
		p.at(p.now)
	}
}

// had is for how long the share has had the card in the time that passes.
func (p *played) had(key share.Key, d time.Duration) time.Duration {
	before := p.usage(key).Held
	p.pass(d)
	return p.usage(key).Held - before
}

func (p *played) usage(key share.Key) lease.Usage {
	for _, c := range p.scheduler.State(p.now) {
		for _, t := range c.Tenants {
			if t.Key == key {
				return t.Usage
			}
		}
	}
	return lease.Usage{}
}

// classed makes a share one of a class.
func (d divided) classed(key share.Key, class share.Class) {
	t := d.tenants[key]
	document := cdi.ShareDocument{Key: key, Policy: share.GuaranteedBurst, Class: class, Card: cdi.ShareCard{UUID: t.Card}}
	document.Limits = share.Limits{Cores: 50}
	if class == share.Offline {
		document.Limits = share.Limits{OfflineCores: 50}
	}
	document.Claim.UID = string(key)
	d.put(document, t.grant, 0)
}

func TestAProcessThatIsStoppedDoesNotCountUntilItGoesOn(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		stopped, other share.Class
		after          time.Duration // that both ran
		part           time.Duration // of a second that the stopped one has once it goes on
	}{
		"where both are of one level":               {share.NoClass, share.NoClass, 100 * ms, 500 * ms},
		"where offline work waits for it":           {share.Online, share.Offline, 100 * ms, time.Second},
		"where it is offline work":                  {share.Offline, share.NoClass, 100 * ms, 0},
		"where it is stopped before others come":    {share.NoClass, share.NoClass, 0, 500 * ms},
		"where offline work comes after it stopped": {share.Online, share.Offline, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := play(newDivided(map[share.Key]int{"stopped": 1, "other": 1}))
			p.classed("stopped", tc.stopped)
			p.classed("other", tc.other)
			process, other := p.demands["stopped"][0], p.demands["other"][0]
			p.pass(tc.after)
			other.Wants.Store(0)
			p.pass(100 * ms)
			require.Equal(t, wire.LeaseOpen, p.state("stopped"))
			p.stopped[process] = true
			p.pass(10 * time.Second) // for as long as nobody waits it is not asked
			require.True(t, p.tenants["stopped"].wants)
			other.Wants.Store(1)
			p.pass(400 * ms)
			require.Equal(t, time.Second, p.had("other", time.Second))
			require.Equal(t, wire.LeaseOpen, p.state("other"))
			require.Equal(t, wire.LeaseClosed, p.tenants["stopped"].word&(wire.LeaseState|wire.LeaseTell), "it may not launch unheard")
			require.Zero(t, p.had("stopped", time.Second))
			delete(p.stopped, process)
			p.pass(100 * ms)
			require.InDelta(t, tc.part, p.had("stopped", time.Second), float64(30*ms))
		})
	}
}

// What one process of a share does says nothing of another.
func TestAProcessThatIsStoppedBesideOthersOfItsShareIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := play(newDivided(map[share.Key]int{"some": 2, "other": 1}))
	p.pass(100 * time.Millisecond)
	p.stopped[p.demands["some"][0]] = true
	p.pass(time.Second)
	require.InDelta(t, time.Second/2, p.had("other", time.Second), float64(time.Second/20))
	require.InDelta(t, time.Second/2, p.had("some", time.Second), float64(time.Second/20))
	require.Equal(t, uint64(shareWindow), p.tenants["some"].grant.Window.Load(), "the other one has all of the window")
	p.demands["some"][1].Wants.Store(0)
	p.pass(100 * time.Millisecond)
	require.Equal(t, wire.LeaseClosed, p.state("some"))
	require.Equal(t, time.Second, p.had("other", time.Second))
	p.demands["some"][1].Wants.Store(1)
	p.pass(100 * time.Millisecond)
	require.InDelta(t, time.Second/2, p.had("some", time.Second), float64(time.Second/20))
}

func TestWhoHasNothingToSayIsNotTakenForStopped(t *testing.T) {
	t.Parallel()
	silent := func(p *played, key share.Key) int { return p.tenants[key].silent }
	t.Run("with a kernel that takes long", func(t *testing.T) {
		t.Parallel()
		p := play(newDivided(map[share.Key]int{"long": 1, "other": 1}))
		p.pass(100 * time.Millisecond)
		long := p.demands["long"][0]
		p.stopped[long] = true
		long.Ends.Store(uint64(p.now + 10*time.Second))
		p.pass(9 * time.Second)
		require.Zero(t, silent(p, "long"))
		require.Equal(t, time.Second/2, p.had("long", time.Second), "it is charged what is its own beside another")
		p.pass(2 * time.Second)
		require.Equal(t, 1, silent(p, "long"))
	})
	t.Run("with a kernel that takes long, beside processes that have drained", func(t *testing.T) {
		t.Parallel()
		p := play(newDivided(map[share.Key]int{"long": 4, "other": 1}))
		p.pass(100 * time.Millisecond)
		long := p.demands["long"][0]
		p.stopped[long] = true
		long.Ends.Store(uint64(p.now + 10*time.Second))
		p.pass(time.Second)
		require.Equal(t, time.Second/2, p.had("long", time.Second), "the card has work of one process of each")
		long.Ends.Store(0)
		delete(p.stopped, long)
		p.pass(20 * time.Second)
		require.InDelta(t, time.Second/2, p.had("long", time.Second), float64(time.Second/20))
	})
	t.Run("that waits for long", func(t *testing.T) {
		t.Parallel()
		p := play(newDivided(map[share.Key]int{"waits": 1, "other": 1}))
		p.withhold("waits", true, 0)
		p.pass(10 * time.Millisecond)
		p.stopped[p.demands["waits"][0]] = true // which nobody can tell
		p.pass(10 * time.Second)
		require.Zero(t, silent(p, "waits"))
		delete(p.stopped, p.demands["waits"][0])
		p.withhold("waits", false, p.now)
		require.InDelta(t, time.Second/2, p.had("waits", time.Second), float64(time.Second/20))
	})
	t.Run("while the arbiter does not listen", func(t *testing.T) {
		t.Parallel()
		p := play(newDivided(map[share.Key]int{"runs": 1, "other": 1}))
		p.pass(100 * time.Millisecond)
		for range 20 {
			p.now += time.Minute
			p.at(p.now) // before any of them is scheduled
			p.pass(10 * time.Millisecond)
		}
		require.Zero(t, silent(p, "runs")+silent(p, "other"))
	})
}

func TestAShareThatIsWithheldStaysSoWhenItsProcessGoesOn(t *testing.T) {
	t.Parallel()
	p := play(newDivided(map[share.Key]int{"stopped": 1, "other": 1}))
	p.pass(100 * time.Millisecond)
	process := p.demands["stopped"][0]
	p.stopped[process] = true
	p.pass(time.Second)
	require.Equal(t, 1, p.tenants["stopped"].silent)
	p.withhold("stopped", true, p.now)
	delete(p.stopped, process)
	require.Zero(t, p.had("stopped", time.Second))
	p.withhold("stopped", false, p.now)
	require.Positive(t, p.had("stopped", time.Second))
}
