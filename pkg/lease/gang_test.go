// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// job is a worker on each of the cards; each kernel is a collective of all of them.
func job(name string, policy share.Policy, cores card.Percent, kernel time.Duration, cards ...string) []*worker {
	var ranks []*worker
	for _, c := range cards {
		ranks = append(ranks, busy(tenant(name+c, c, policy, cores), kernel).gang(name))
	}
	for _, w := range ranks {
		for _, p := range ranks {
			if p != w {
				w.peers = append(w.peers, p)
			}
		}
	}
	return ranks
}

func TestJobOnTwoCardsGetsItsPartOfBoth(t *testing.T) {
	t.Parallel()
	for _, kernel := range []time.Duration{50 * us, 300 * us, 3 * ms} {
		ranks := job("j", share.GuaranteedBurst, 40, kernel, "x", "y")
		m := simulate(t, append(ranks,
			busy(tenant("a", "x", share.GuaranteedBurst, 60), 200*us),
			busy(tenant("b", "y", share.GuaranteedBurst, 30), 200*us),
			busy(tenant("c", "y", share.GuaranteedBurst, 30), 200*us))...)
		m.run(11 * time.Second)
		require.Greater(t, time.Duration(ranks[0].done)*kernel, 11*time.Second*4/10*8/10)
		for i, part := range []float64{40, 40, 60, 30, 30} {
			require.InDelta(t, part, m.shares(10 * time.Second)[i], 2, "%v %v", kernel, i)
		}
	}
}

// feeder is a thread that launches a kernel on each of the cards in turn, none of which waits
// for another one.
func feeder(name string, cores card.Percent, kernel time.Duration, cards ...string) []*worker {
	thread := job(name, share.GuaranteedBurst, cores, kernel, cards...)
	for _, w := range thread {
		w.peers, w.thread = nil, thread
	}
	return thread
}

func TestThreadThatFeedsTwoCardsHasThemTogether(t *testing.T) {
	t.Parallel()
	for _, kernel := range []time.Duration{300 * us, ms, 3 * ms} {
		thread := feeder("f", 50, kernel, "x", "y")
		m := simulate(t, append(thread,
			busy(tenant("a", "x", share.GuaranteedBurst, 50), kernel), busy(tenant("b", "y", share.GuaranteedBurst, 50), kernel))...)
		m.run(10 * time.Second)
		both, one := together(thread[0].log, thread[1].log)
		require.Greater(t, both, one*8/10, "%v", kernel)
		for i, part := range m.shares(9 * time.Second) {
			require.InDelta(t, 50, part, 3, "%v %v", kernel, i)
		}
	}
}

// Whose turn comes only when a kernel of others ends that is much longer than their turns.
func TestThreadThatFeedsTwoCardsHasThemTogetherBesideLongKernels(t *testing.T) {
	t.Parallel()
	for _, kernel := range []time.Duration{60 * ms, 99 * ms} {
		for others := 1; others <= 2; others++ {
			thread := feeder("f", 50, ms, "x", "y")
			all := slices.Clone(thread)
			for i := range others {
				for _, c := range []string{"x", "y"} {
					all = append(all, busy(tenant(fmt.Sprint("o", i, c), c, share.GuaranteedBurst, card.Percent(50/others)), kernel))
				}
			}
			m := simulate(t, all...)
			m.run(20 * time.Second)
			both, one := together(thread[0].log, thread[1].log)
			require.Greater(t, both, one*8/10, "%v, %v others", kernel, others)
			for i, part := range m.shares(18 * time.Second)[:2] {
				require.Greater(t, part, 15.0, "%v, %v others, %v", kernel, others, i)
			}
		}
	}
}

// What others owe it grows by as much as one of their kernels takes.
func TestJobHasItsPartBesideManyWithLongKernels(t *testing.T) {
	t.Parallel()
	for _, kernel := range []time.Duration{40 * ms, 60 * ms} {
		ranks := job("j", share.GuaranteedBurst, 50, ms, "x", "y")
		all := slices.Clone(ranks)
		for i := range 4 {
			for _, c := range []string{"x", "y"} {
				all = append(all, busy(tenant(fmt.Sprint("o", i, c), c, share.GuaranteedBurst, 12), kernel))
			}
		}
		m := simulate(t, all...)
		m.run(30 * time.Second)
		for i, part := range m.shares(28 * time.Second)[:2] {
			require.InDelta(t, 50, part, 3, "%v %v", kernel, i)
		}
	}
}

// together is for how long both of two workers had their cards, and at least one.
func together(a, b []span) (both, one time.Duration) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		both += max(0, min(a[i].to, b[j].to)-max(a[i].from, b[j].from))
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}
	for _, s := range append(slices.Clone(a), b...) {
		one += s.to - s.from
	}
	return both, one - both
}

func TestCardThatAClaimOnTwoDoesNotUseIsForOthers(t *testing.T) {
	t.Parallel()
	job := job("j", share.GuaranteedBurst, 50, ms, "x", "y")
	job[0].peers, job[1].peers = nil, nil
	job[1].sleeps = lease.Never
	m := simulate(t, append(job,
		busy(tenant("a", "x", share.GuaranteedBurst, 50), ms), busy(tenant("b", "y", share.GuaranteedBurst, 50), ms))...)
	m.run(10 * time.Second)
	for i, part := range []float64{50, 0, 50, 100} {
		require.InDelta(t, part, m.shares(9 * time.Second)[i], 2, "%v", i)
	}
}

func TestJobsThatCrossDoNotKeepEachOtherWaiting(t *testing.T) {
	t.Parallel()
	var workers []*worker
	workers = append(workers, job("g", share.GuaranteedBurst, 50, 300*us, "x", "y")...)
	workers = append(workers, job("h", share.GuaranteedBurst, 50, 300*us, "y", "z")...)
	workers = append(workers, job("i", share.GuaranteedBurst, 50, 300*us, "z", "x")...)
	m := simulate(t, workers...)
	m.run(10 * time.Second)
	for _, w := range workers {
		require.Greater(t, w.done, 3000)
	}
}

func TestHalfLaunchedCollectiveEnds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	ranks := job("j", share.GuaranteedBurst, 50, 300*us, "x", "y", "z")
	for _, w := range ranks {
		w.think = func() time.Duration { return time.Duration(1+random.IntN(400)) * us }
	}
	m := simulate(t, append(ranks,
		busy(tenant("a", "x", share.GuaranteedBurst, 50), 200*us),
		busy(tenant("b", "y", share.GuaranteedBurst, 50), 200*us))...)
	m.run(10 * time.Second)
	require.Less(t, slices.Max(ranks[0].took), 100*ms)
	require.Greater(t, ranks[0].done, 4000)
}

func TestJobOfLongKernelsKeepsNobodyFromItsCards(t *testing.T) {
	t.Parallel()
	// The first job has a kernel in flight on z whenever it has drained on y, which looks as
	// if half of a collective were missing.
	workers := []*worker{
		busy(tenant("o", "y", share.GuaranteedBurst, 0), ms).class(share.Offline),
		busy(tenant("t", "y", share.Fixed, 20), 4*ms),
	}
	workers = append(workers, job("j", share.BestEffort, 0, ms, "y", "z")...)
	workers = append(workers, job("k", share.Fixed, 5, 4*ms, "y", "z")...)
	for _, w := range workers[2:] {
		w.class(share.Online)
	}
	m := simulate(t, workers...)
	m.run(10 * time.Second)
	for i, part := range []float64{0, 20, 75, 75, 5, 5} {
		require.InDelta(t, part, m.shares(9 * time.Second)[i], 4, "%v", i)
	}
}

func TestSharesBesideAJobLoseNothingWhileItGetsItsCards(t *testing.T) {
	t.Parallel()
	type mixture struct {
		workers []*worker
		parts   []float64 // in percent, of those to whom something is guaranteed
	}
	for name, m := range map[string]mixture{
		"where the other card has long kernels": {append(job("j", share.Fixed, 50, ms, "x", "y"),
			busy(tenant("a", "y", share.Fixed, 40), 300*us),
			busy(tenant("b", "y", share.Fixed, 10), ms),
			busy(tenant("c", "x", share.GuaranteedBurst, 50), 4*ms)), []float64{49.8, 49.8, 40, 10, 50}},
		"where both cards have": {append(job("j", share.Fixed, 20, ms, "x", "y"),
			busy(tenant("a", "x", share.Fixed, 40), 4*ms),
			busy(tenant("b", "y", share.Fixed, 30), 4*ms),
			busy(tenant("c", "y", share.BestEffort, 0), 4*ms)), []float64{20, 20, 40, 30}},
		"on three cards": {append(job("j", share.GuaranteedBurst, 40, 50*us, "x", "y", "z"),
			busy(tenant("a", "y", share.Fixed, 20), 300*us),
			busy(tenant("b", "y", share.Fixed, 40), 300*us),
			busy(tenant("c", "x", share.BestEffort, 0), 4*ms),
			busy(tenant("d", "z", share.Fixed, 10), ms)), []float64{40, 40, 40, 20, 40, 0, 10}},
		"where another job wants the same cards": {append(append(job("j", share.Fixed, 20, ms, "x", "y", "z"),
			job("k", share.GuaranteedBurst, 20, 50*us, "x", "y")...),
			busy(tenant("a", "y", share.Fixed, 20), 300*us),
			busy(tenant("b", "y", share.GuaranteedBurst, 10), 4*ms)), []float64{20, 20, 20, 20, 20, 20, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := simulate(t, m.workers...)
			s.run(11 * time.Second)
			for i, got := range s.shares(10 * time.Second)[:len(m.parts)] {
				require.Greater(t, got, m.parts[i]-1, "%v of %v", m.workers[i].spec.Key, s.shares(10*time.Second))
			}
		})
	}
}

func TestAMemberThatMayHaveLaunchedWhileOfflineWorkRanIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := lease.New(lease.Config{})
	for _, key := range []string{"a", "b", "c"} {
		spec := tenant(key, "x", share.BestEffort, 0)
		spec.Class = share.Online
		if key == "b" {
			spec.Gang = "g" // whose other card was never asked for
		}
		s.Put(0, spec)
	}
	off := tenant("off", "x", share.BestEffort, 0)
	off.Class = share.Offline
	s.Put(0, off)
	now := time.Second // the limit of draining counts from when it was closed, not from the beginning
	s.Wants(now, "off", true)
	s.Decide(now)
	s.Wants(now, "a", true)
	s.Wants(now, "b", true)
	s.Decide(now)
	require.EqualValues(t, "a", s.State(now)[0].Holder)
	require.True(t, s.State(now)[0].Tenants[1].Draining, "it could launch before it was told")
	s.Wants(now+ms, "c", true)
	s.Wants(now+ms, "a", false)
	s.Decide(now + ms)
	require.Empty(t, s.State(now + ms)[0].Holder)
	s.Drained(now+2*ms, "b")
	s.Decide(now + 2*ms)
	require.NotEmpty(t, s.State(now + 2*ms)[0].Holder)
}
