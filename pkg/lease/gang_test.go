// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
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
