// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
)

// Mixtures that were found by TestAnyMixtureOfTenants, and are too rare to leave to it.

func TestOfflineWorkIsNotReviewedAllTheTimeWhileAGangWaitsForAnotherCard(t *testing.T) {
	t.Parallel()
	workers := job("j", share.BestEffort, 0, 4*ms, "x", "y")
	for _, w := range workers {
		w.thinks(700 * us)
	}
	m := simulate(t, append(workers,
		busy(tenant("a", "x", share.BestEffort, 0), 4*ms),
		busy(tenant("b", "x", share.BestEffort, 0), 50*us),
		busy(tenant("c", "y", share.BestEffort, 0), 50*us).offline(0),
		busy(tenant("d", "y", share.BestEffort, 0), 50*us).thinks(9*ms).offline(0))...)
	m.run(2 * time.Second)
	require.Less(t, m.timers, 4000)
	require.Greater(t, m.shares(time.Second)[4], 60.0)
}

func TestGangThatIsStuckHasTimeToEndMoreThanItLaunches(t *testing.T) {
	t.Parallel()
	workers := []*worker{
		busy(tenant("a", "y", share.Fixed, 10), 50*us),
		busy(tenant("b", "y", share.Fixed, 10), 300*us),
		busy(tenant("c", "y", share.GuaranteedBurst, 40), 4*ms),
		busy(tenant("d", "y", share.Fixed, 10), 300*us).thinks(9 * ms).class(share.Online),
		busy(tenant("e", "x", share.BestEffort, 0), 50*us).class(share.Online),
	}
	workers[0].foretells, workers[2].foretells, workers[4].foretells = 30*us, 70*us, 70*us
	workers = append(workers, job("i", share.NativeBurst, 0, 300*us, "y", "z")...)
	for _, w := range job("j", share.NativeBurst, 10, ms, "x", "y", "z") {
		workers = append(workers, w.ceiling(60).class(share.Online))
	}
	m := simulate(t, workers...)
	m.run(11 * time.Second)
	for i, part := range []float64{10, 10, 40} {
		require.Greater(t, m.shares(10 * time.Second)[i], part-1)
	}
	for _, c := range m.s.State(m.now) {
		require.Less(t, c.Overlap, 100*ms, "it does not spin while others have the card")
	}
}

// The hardware gives it half of the card, which nobody can have back.
func TestNobodyStarvesBesideWorkThatNeverEnds(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.Fixed, 10), 50*us),
		busy(tenant("b", "x", share.Fixed, 10), 300*us),
		busy(tenant("c", "x", share.GuaranteedBurst, 40), 300*us),
		busy(tenant("d", "x", share.BestEffort, 0), time.Hour))
	m.run(11 * time.Second)
	for i, part := range []float64{10, 10, 40} {
		require.Greater(t, m.shares(10 * time.Second)[i], part/2, "%v", m.shares(10*time.Second))
	}
}
