// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

func (w *worker) class(c share.Class) *worker { w.spec.Class = c; return w }
func (w *worker) gang(g string) *worker       { w.spec.Gang = g; return w }
func (w *worker) ceiling(p card.Percent) *worker {
	w.spec.Ceiling = p
	return w
}

func (w *worker) offline(p card.Percent) *worker {
	w.spec.Class, w.spec.Limits = share.Offline, share.Limits{OfflineCores: p}
	return w
}
func (w *worker) thinks(d time.Duration) *worker { w.think = always(d); return w }

// awake only from then on: nothing is launched before.
func (w *worker) awake(at lease.Time) *worker { w.sleeps = at; return w }

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[int(q*float64(len(d)-1))]
}

func TestWorkedExampleOfFixedShares(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.Fixed, 20), 200*us).awake(lease.Never),
		busy(tenant("b", "x", share.Fixed, 30), 200*us))
	m.run(2 * time.Second)
	require.InDelta(t, 30, m.shares(time.Second)[1], 1)
}

func TestWorkedExampleOfGuaranteedBurst(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.GuaranteedBurst, 20), 200*us).awake(2*time.Second),
		busy(tenant("b", "x", share.GuaranteedBurst, 30), 200*us))
	m.run(2 * time.Second)
	require.InDelta(t, 100, m.shares(time.Second)[1], 0.01, "b has all of the card while a sleeps")
	m.run(4 * time.Second)
	require.Less(t, m.workers[0].wait[0], 20*ms, "a has it back at once")
	require.InDelta(t, 40, m.shares(time.Second)[0], 1)
	require.InDelta(t, 60, m.shares(time.Second)[1], 1)
	m.add(busy(tenant("c", "x", share.GuaranteedBurst, 50), 200*us))
	m.workers[2].from = m.now
	m.run(6 * time.Second)
	for i, cores := range []float64{20, 30, 50} {
		require.InDelta(t, cores, m.shares(time.Second)[i], 1)
	}
}

func TestFixedNeverPassesItsShareByMoreThanAQuantum(t *testing.T) {
	t.Parallel()
	for _, kernel := range []time.Duration{50 * us, 200 * us, ms} {
		for _, others := range [][]*worker{
			nil,
			{busy(tenant("b", "x", share.BestEffort, 0), kernel)},
			{busy(tenant("b", "x", share.Fixed, 30), kernel), busy(tenant("c", "x", share.NativeBurst, 20), kernel)},
			{busy(tenant("b", "x", share.GuaranteedBurst, 30), kernel).thinks(7 * ms)},
		} {
			for _, think := range []time.Duration{0, 500 * us, 3 * ms} {
				w := busy(tenant("a", "x", share.Fixed, 20), kernel).thinks(think)
				m := simulate(t, append(others, w)...)
				m.run(3 * time.Second)
				require.Less(t, w.most(0.2), 5*ms+window, "%v %v %v", kernel, len(others), think)
				for _, o := range others {
					*o = *busy(o.spec, kernel)
				}
			}
		}
	}
}

func TestBurstCeilingIsKept(t *testing.T) {
	t.Parallel()
	for _, policy := range []share.Policy{share.GuaranteedBurst, share.NativeBurst} {
		w := busy(tenant("a", "x", policy, 20), 200*us).ceiling(60)
		m := simulate(t, w, busy(tenant("b", "x", share.GuaranteedBurst, 20), 200*us).awake(2*time.Second))
		m.run(2 * time.Second)
		require.InDelta(t, 60, m.shares(time.Second)[0], 1)
		m.run(4 * time.Second)
		require.InDelta(t, 50, m.shares(time.Second)[0], 40)
		require.Less(t, w.most(0.6), 20*ms)
	}
}

func TestRaisedCeilingCountsAtOnce(t *testing.T) {
	t.Parallel()
	w := busy(tenant("a", "x", share.GuaranteedBurst, 20), 200*us).ceiling(40)
	m := simulate(t, w, busy(tenant("b", "x", share.Fixed, 20), 200*us).awake(lease.Never))
	m.run(time.Second)
	require.InDelta(t, 40, m.shares(500 * ms)[0], 1)
	w.spec.Ceiling = 80
	m.s.Put(m.now, w.spec)
	m.decide()
	m.run(2 * time.Second)
	require.InDelta(t, 80, m.shares(900 * ms)[0], 1)
}

func TestBestEffortTenantsDivideWhatIsLeft(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.GuaranteedBurst, 40), 200*us).ceiling(40),
		busy(tenant("b", "x", share.BestEffort, 0), 200*us),
		busy(tenant("c", "x", share.BestEffort, 0), ms),
		busy(tenant("d", "x", share.BestEffort, 0), 5*ms))
	m.run(11 * time.Second)
	for i, part := range []float64{40, 20, 20, 20} {
		require.InDelta(t, part, m.shares(10 * time.Second)[i], 0.5)
	}
}

func TestBestEffortHasALittleWhereNothingIsLeft(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.GuaranteedBurst, 50), 200*us),
		busy(tenant("b", "x", share.Fixed, 50), 200*us),
		busy(tenant("c", "x", share.BestEffort, 0), 200*us))
	m.run(11 * time.Second)
	for i, part := range []float64{49.75, 49.75, 0.5} {
		require.InDelta(t, part, m.shares(10 * time.Second)[i], 0.2)
	}
}

func TestGuaranteeHoldsBesideSleeperWithLongKernels(t *testing.T) {
	t.Parallel()
	// What the sleeper took too much of, and leaves to others while it sleeps, does not come to
	// the fixed share.
	m := simulate(t,
		busy(tenant("a", "x", share.Fixed, 20), 300*us),
		busy(tenant("b", "x", share.BestEffort, 0), 50*us),
		busy(tenant("c", "x", share.BestEffort, 0), 5*ms).thinks(6*ms))
	m.run(11 * time.Second)
	require.InDelta(t, 20, m.shares(10 * time.Second)[0], 1)
}

func TestBestEffortHasALittleBesideTheDebtOfASleeper(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.Fixed, 100), 200*us),
		busy(tenant("b", "x", share.BestEffort, 0), 200*us),
		busy(tenant("c", "x", share.BestEffort, 0), 40*ms).thinks(time.Hour))
	m.run(21 * time.Second)
	require.InDelta(t, 0.5, m.shares(10 * time.Second)[1], 0.2)
}

func TestCardIsNotIdleWhileItIsWanted(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var workers []*worker
		for i := range 2 + random.IntN(6) {
			w := busy(tenant(string(rune('a'+i)), "x", share.Policies()[random.IntN(4)], 10), time.Duration(50+random.IntN(2000))*us)
			if i > 0 && random.IntN(2) == 0 {
				w.thinks(time.Duration(random.IntN(5000)) * us)
			}
			workers = append(workers, w)
		}
		// There is always one who wants all that is left.
		workers[0].spec.Policy = share.BestEffort
		m := simulate(t, workers...)
		m.run(3 * time.Second)
		c := m.s.State(m.now)[0]
		handOvers := float64(c.Switches) * float64(bellDelay+wakeDelay+idleBefore) / float64(m.now) * 100
		require.Less(t, m.idle(m.now), handOvers+0.3) // who is opened again is no switch
		require.Less(t, m.timers, 3*int(c.Switches)+1000, "no more is decided than changes")
	}
}

func TestIdleComputeIsHandedBack(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, cores := range [][]card.Percent{{20, 30}, {10, 90}, {1, 99}, {20, 30, 50}, {20, 20, 20, 20, 20}} {
		for _, kernel := range []time.Duration{50 * us, ms} {
			// The first one wakes now and then, for a quantum; the others are always busy.
			w := busy(tenant("a", "x", share.GuaranteedBurst, cores[0]), kernel)
			w.think = func() time.Duration { return time.Duration(200+random.IntN(100)) * ms }
			workers := []*worker{w}
			for i, c := range cores[1:] {
				workers = append(workers, busy(tenant(string(rune('b'+i)), "x", share.GuaranteedBurst, c), kernel))
			}
			m := simulate(t, workers...)
			m.run(20 * time.Second)
			require.Greater(t, len(w.wait), 50)
			require.Less(t, slices.Max(w.wait), 20*ms, "%v %v", cores, kernel)
		}
	}
}

func TestOnlineWaitsForNobody(t *testing.T) {
	t.Parallel()
	for _, think := range []time.Duration{2 * ms, 15 * ms, 150 * ms} {
		for _, kernel := range []time.Duration{100 * us, ms} {
			random := rand.New(rand.NewPCG(5, 6))
			on := busy(tenant("on", "x", share.GuaranteedBurst, 50), 2*ms).class(share.Online)
			on.think = func() time.Duration { return time.Duration(random.ExpFloat64()*float64(think)) + us }
			off := busy(tenant("off", "x", share.BestEffort, 0), kernel).offline(50)
			m := simulate(t, on, off)
			m.run(10 * time.Second)
			require.Greater(t, len(on.took), 50)
			require.Less(t, slices.Max(on.took), 2*ms+2*window+100*us, "what is in flight of the other one at most")
			require.Less(t, quantile(on.took, 0.5), 2*ms+window)
			if think > 2*ms {
				require.Greater(t, m.shares(10 * time.Second)[1], 20.0, "offline has the gaps")
			}
		}
	}
}

func TestOfflineHasNothingWhileOnlineIsBusy(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("on", "x", share.GuaranteedBurst, 10), 200*us).class(share.Online),
		busy(tenant("none", "x", share.BestEffort, 0), 200*us),
		busy(tenant("off", "x", share.Fixed, 0), 200*us).offline(50))
	m.run(3 * time.Second)
	require.InDelta(t, 0, m.shares(time.Second)[2], 0.01)
	require.InDelta(t, 0, m.idle(time.Second), 2)
}

func TestOfflineHasWhatTheCeilingsOfOnlineLeave(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("on", "x", share.Fixed, 30), 200*us).class(share.Online),
		busy(tenant("off a", "x", share.GuaranteedBurst, 0), 200*us).offline(20),
		busy(tenant("off b", "x", share.GuaranteedBurst, 0), 200*us).offline(80))
	m.run(12 * time.Second)
	shares := m.shares(10 * time.Second)
	require.InDelta(t, 30, shares[0], 4)
	require.InDelta(t, 0.25, shares[1]/shares[2], 0.03, "by the rules of their own level")
	require.Less(t, m.idle(10*time.Second), 3.0)
}

func TestOfflineWorkIsEntitledToNothingWhileItMayNotRun(t *testing.T) {
	t.Parallel()
	s := scheduler(classed(burst("on", 50), share.Online), classed(tenant("off", "x", share.Fixed, 80), share.Offline))
	off := func(now lease.Time) (rate float64, entitled time.Duration) {
		o := s.State(now)[0].Tenants[0]
		require.EqualValues(t, "off", o.Key)
		return o.Rate, o.Usage.Entitled
	}
	for _, step := range []struct {
		at       lease.Time
		who      share.Key
		wants    bool
		rate     float64
		entitled time.Duration
	}{
		{0, "off", true, 0.8, 0},
		{10 * ms, "on", true, 0, 8 * ms},
		{50 * ms, "on", false, 0, 8 * ms}, // its next request may be near
		{80 * ms, "on", false, 0.8, 8 * ms},
		{90 * ms, "off", false, 0, 16 * ms},
	} {
		s.Wants(step.at, step.who, step.wants)
		s.Decide(step.at)
		rate, entitled := off(step.at)
		require.InDelta(t, step.rate, rate, 1e-9, "at %s", step.at)
		require.InDelta(t, step.entitled, entitled, 1, "at %s", step.at)
	}
}

func TestHoldTimeFollowsTheGapsOfOnlineWork(t *testing.T) {
	t.Parallel()
	s := lease.New(lease.Config{})
	on, off := tenant("on", "x", share.BestEffort, 0), tenant("off", "x", share.BestEffort, 0)
	on.Class, off.Class = share.Online, share.Offline
	s.Put(0, on)
	s.Put(0, off)
	s.Wants(0, "off", true)
	s.Decide(0)
	// opens is how long after the end of online work the offline one is let in.
	var now lease.Time
	opens := func() time.Duration {
		s.Wants(now, "on", true)
		s.Decide(now)
		s.Drained(now+us, "off")
		s.Wants(now+ms, "on", false)
		now += ms
		at := s.Decide(now).Next
		changes := s.Decide(at).Changes
		require.Contains(t, changes, lease.Change{Key: "off", Grant: lease.Grant{State: lease.Open}})
		require.Contains(t, changes, lease.Change{Key: "on", Grant: lease.Grant{State: lease.Open, Tell: true}})
		return at - now
	}
	require.Equal(t, ms, opens())
	for range 100 {
		now += 3 * ms
		s.Wants(now, "on", true)
		s.Decide(now)
		now += ms
		s.Wants(now, "on", false)
		s.Decide(now)
	}
	now += 5 * time.Second
	require.Equal(t, 6*ms, opens(), "twice the gaps within its work; the pause does not count")
}

func TestWhoFlapsDoesNotGainByIt(t *testing.T) {
	t.Parallel()
	for _, policy := range []share.Policy{share.Fixed, share.GuaranteedBurst, share.NativeBurst, share.BestEffort} {
		liar, honest := tenant("a", "x", policy, 20), tenant("b", "x", policy, 80)
		want := map[share.Policy]float64{share.Fixed: 0.2, share.GuaranteedBurst: 0.2, share.NativeBurst: 0.2, share.BestEffort: 0.5}[policy]
		s := lease.New(lease.Config{})
		s.Put(0, liar)
		s.Put(0, honest)
		s.Wants(0, "b", true)
		s.Decide(0)
		random := rand.New(rand.NewPCG(7, 8))
		wants := false
		for now := lease.Time(0); now < 3*time.Second; now += time.Duration(1+random.IntN(20)) * us {
			wants = !wants || random.IntN(4) > 0
			s.Wants(now, "a", wants)
			for _, c := range s.Decide(now).Changes {
				if c.State == lease.Closed {
					s.Drained(now+us, c.Key)
				}
			}
			s.Decide(now + us)
		}
		state := s.State(3 * time.Second)[0]
		require.LessOrEqual(t, state.Tenants[0].Usage.Held.Seconds()/3, want+0.01, policy)
		if policy != share.Fixed {
			require.GreaterOrEqual(t, state.Tenants[1].Usage.Held.Seconds()/3, 1-want-0.03, policy)
		}
	}
}

func TestStoppedProcessKeepsNobodyFromTheCard(t *testing.T) {
	t.Parallel()
	frozen := busy(tenant("a", "x", share.GuaranteedBurst, 50), 200*us)
	frozen.frozen = time.Second
	m := simulate(t, frozen, busy(tenant("b", "x", share.GuaranteedBurst, 50), 200*us))
	m.run(3 * time.Second)
	require.InDelta(t, 100, m.shares(time.Second)[1], 10)
}

func TestLongKernelIsPaidBack(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.GuaranteedBurst, 50), 80*ms),
		busy(tenant("b", "x", share.GuaranteedBurst, 50), 200*us))
	m.run(11 * time.Second)
	require.InDelta(t, 50, m.shares(10 * time.Second)[0], 1)
}

func TestWhoDrainsAtOnceIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := scheduler(burst("a", 50), burst("b", 50))
	now := lease.Time(0)
	s.Wants(now, "a", true)
	s.Wants(now, "b", true)
	// turn ends the lease of who holds the card, and tells whether the other one was opened with that. Otherwise
	// it is once the first has drained.
	turn := func(drain time.Duration) (early bool) {
		var changes []lease.Change
		for len(changes) == 0 || changes[0].State != lease.Closed {
			d := s.Decide(now)
			if changes = d.Changes; len(changes) == 0 {
				now = d.Next
			}
		}
		early = len(changes) == 2 && changes[1].State == lease.Open
		now += drain
		s.Drained(now, changes[0].Key)
		require.Equal(t, early, len(s.Decide(now).Changes) == 0)
		return early
	}
	s.Decide(now)
	for range 8 {
		require.False(t, turn(100*us), "nothing is known of them")
	}
	require.True(t, turn(100*us))
	require.True(t, turn(100*us))
	require.True(t, turn(ms), "which was not foreseen")
	require.True(t, turn(100*us), "the other one")
	require.False(t, turn(100*us), "who took longer is waited for, and the next times too")
	require.True(t, turn(100*us))
	require.False(t, turn(100*us))
}

// Who launches little at a time loses the card for no longer than it takes to tell the next one.
func TestLaunchBoundTenantsHaveAllOfTheCard(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.GuaranteedBurst, 50), 20*us).thinks(us),
		busy(tenant("b", "x", share.GuaranteedBurst, 50), 20*us).thinks(us))
	m.run(11 * time.Second)
	got := m.shares(10 * time.Second)
	require.InDelta(t, got[0], got[1], 0.1)
	handOvers := float64(m.s.State(m.now)[0].Switches) * float64(wakeDelay) / float64(m.now) * 100
	require.Less(t, 100*20/21.0-got[0]-got[1], handOvers+0.05)
}
