// SPDX-License-Identifier: Apache-2.0

package guarantee_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/guarantee"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	interval = 30 * time.Second
	patience = 5 * time.Minute
)

// world is a node whose arbiter, clock and API server are the test's.
type world struct {
	now     time.Time
	shares  []nodeview.Guarantee
	writes  int
	written map[string][]guarantee.Entry // by claim
	fails   error
	keeper  *guarantee.Keeper
}

func newWorld(shares ...nodeview.Guarantee) *world {
	w := &world{now: time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC), shares: shares, written: map[string][]guarantee.Entry{}}
	w.keeper = guarantee.New(guarantee.Config{
		Driver: "gpu.tranche.dev", Interval: interval, Patience: patience, Rate: 1e6, Burst: 1e6, Now: func() time.Time { return w.now },
	}, w, w)
	w.keeper.Look(context.Background())
	return w
}

func (w *world) Guarantees(context.Context) []nodeview.Guarantee { return w.shares }

func (w *world) Write(_ context.Context, claim share.Claim, entries []guarantee.Entry) error {
	w.writes++
	if w.fails == nil {
		w.written[claim.UID] = entries
	}
	return w.fails
}

// pass lets an interval pass in which each share wanted its card for some of it, and
// had it for a part of that in percent.
func (w *world) pass(t *testing.T, wanted time.Duration, percent ...int) {
	t.Helper()
	for range 3 {
		for i := range w.shares {
			s := &w.shares[i]
			s.Wanted += wanted / 3
			s.Held += wanted / 3 * time.Duration(percent[i]) / 100
			s.Throttled = s.Wanted - s.Held
			s.Entitled = s.Wanted * time.Duration(s.Limits.Cores) / 100
		}
		w.now = w.now.Add(interval / 3)
		w.keeper.Look(t.Context())
	}
}

func (w *world) status(t *testing.T, claim string, i int) v1alpha1.ShareStatus {
	t.Helper()
	require.Greater(t, len(w.written[claim]), i)
	var s v1alpha1.ShareStatus
	require.NoError(t, json.Unmarshal(w.written[claim][i].Data, &s))
	return s
}

func guaranteeOf(claim string, n int, policy share.Policy, cores card.Percent) nodeview.Guarantee {
	id := share.ID{
		Claim:   share.Claim{UID: claim, Namespace: "team", Name: claim},
		Request: "gpu", Pool: "node1", Device: fmt.Sprintf("gpu-%d", n), ShareID: fmt.Sprintf("share-%d", n),
	}
	return nodeview.Guarantee{Key: id.Key(), ID: id, Card: card.UUID(id.Device), Policy: policy, Class: share.NoClass, Limits: share.Limits{Cores: cores}, Ceiling: 80}
}

func TestWhatIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(guaranteeOf("a", 0, share.GuaranteedBurst, 30))
	w.shares[0].Preemptions = 1000
	w.pass(t, 0, 0) // nothing is wanted
	require.Zero(t, w.writes)
	w.shares[0].Preemptions += 10
	for range 9 {
		w.shares[0].Latency.Add(300 * time.Microsecond)
	}
	w.shares[0].Latency.Add(15 * time.Millisecond)
	w.pass(t, 21*time.Second, 31)
	require.Equal(t, 1, w.writes)
	require.Len(t, w.written["a"], 1)
	entry := w.written["a"][0]
	require.Equal(t, []string{"gpu.tranche.dev", "node1", "gpu-0", "share-0"}, []string{entry.Driver, entry.Pool, entry.Device, entry.ShareID})
	s := w.status(t, "a", 0)
	require.Equal(t, "tranche.dev/v1alpha1", s.APIVersion)
	require.Equal(t, "ShareStatus", s.Kind)
	require.Equal(t, share.GuaranteedBurst, s.Policy)
	require.EqualValues(t, 30, s.GrantedPercent)
	require.EqualValues(t, 80, *s.BurstCeilingPercent)
	require.InDelta(t, 30, s.EntitledPercent, 0.05)
	require.InDelta(t, 31, s.AchievedPercent, 0.05)
	require.InDelta(t, s.WantedSeconds*0.69, s.ThrottledSeconds, 0.1)
	require.LessOrEqual(t, s.WantedSeconds, s.To.Sub(s.From.Time).Seconds())
	require.EqualValues(t, 10, s.Preemptions)
	require.InDelta(t, 0.37, *s.PreemptionLatencyP50Milliseconds, 0.1)
	require.InDelta(t, 19, *s.PreemptionLatencyP99Milliseconds, 1)
}

func TestAFixedShareHasNoCeilingAndAnOfflineOneItsOwnLedger(t *testing.T) {
	t.Parallel()
	g := guaranteeOf("a", 0, share.Fixed, 0)
	g.Class, g.Limits.OfflineCores = share.Offline, 40
	w := newWorld(g)
	w.pass(t, 20*time.Second, 40)
	w.pass(t, 20*time.Second, 40)
	s := w.status(t, "a", 0)
	require.Nil(t, s.BurstCeilingPercent)
	require.EqualValues(t, 40, s.GrantedPercent)
	require.Nil(t, s.PreemptionLatencyP50Milliseconds)
}

func TestWhenItIsTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then  func(t *testing.T, w *world)
		again int
	}{
		"nothing has changed":        {func(t *testing.T, w *world) { w.pass(t, 20*time.Second, 30) }, 0},
		"almost nothing has changed": {func(t *testing.T, w *world) { w.pass(t, 20*time.Second, 30); w.pass(t, 18*time.Second, 30) }, 0},
		"nothing is wanted any more": {func(t *testing.T, w *world) { w.pass(t, 0, 0); w.pass(t, 0, 0) }, 0},
		"hardly anything is wanted":  {func(t *testing.T, w *world) { w.pass(t, 300*time.Millisecond, 99); w.pass(t, 300*time.Millisecond, 99) }, 0},
		"a lot has changed":          {func(t *testing.T, w *world) { w.pass(t, 20*time.Second, 40); w.pass(t, 20*time.Second, 40) }, 1},
		"a little has changed":       {func(t *testing.T, w *world) { w.pass(t, 20*time.Second, 32); w.pass(t, 20*time.Second, 32) }, 0},
		"a little, and for a long time": {func(t *testing.T, w *world) {
			for range 25 {
				w.pass(t, 20*time.Second, 32)
			}
		}, 1},
		"it swings all the time": {func(t *testing.T, w *world) {
			for i := range 20 {
				w.pass(t, 20*time.Second, 10+i%2*80)
			}
		}, 20},
		"the ceiling is another": {func(t *testing.T, w *world) { w.shares[0].Ceiling = 50; w.pass(t, 20*time.Second, 30) }, 1},
		"the arbiter is a new one": {func(t *testing.T, w *world) {
			w.shares[0] = guaranteeOf("a", 0, share.GuaranteedBurst, 30)
			w.pass(t, 20*time.Second, 30)
		}, 0},
		"it is away for a moment and counts from 0": {func(t *testing.T, w *world) {
			known := w.shares
			w.shares = nil
			w.now = w.now.Add(interval)
			w.keeper.Look(t.Context())
			w.shares = known
			w.pass(t, 20*time.Second, 30)
			w.pass(t, 20*time.Second, 30)
			w.pass(t, 20*time.Second, 30)
		}, 1},
		"the API server is away": {func(t *testing.T, w *world) {
			w.fails = errors.New("connection refused")
			w.pass(t, 20*time.Second, 50)
			w.pass(t, 20*time.Second, 50)
			tried := w.writes
			require.Greater(t, tried, 1)
			w.fails = nil
			w.writes = 1
			w.pass(t, 20*time.Second, 50)
			w.pass(t, 20*time.Second, 50)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(guaranteeOf("a", 0, share.GuaranteedBurst, 30))
			w.pass(t, 20*time.Second, 30)
			w.pass(t, 20*time.Second, 30)
			require.Equal(t, 1, w.writes)
			tc.then(t, w)
			require.Equal(t, 1+tc.again, w.writes)
		})
	}
}

// What one writes of a claim takes the place of all that was written before: the
// other shares must not be lost.
func TestAllSharesOfAClaimAreToldTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(guaranteeOf("a", 1, share.GuaranteedBurst, 30), guaranteeOf("a", 0, share.NativeBurst, 20), guaranteeOf("b", 2, share.Fixed, 10))
	w.pass(t, 20*time.Second, 30, 0, 0)
	w.pass(t, 20*time.Second, 30, 0, 0)
	require.Len(t, w.written["a"], 2)
	require.Equal(t, "gpu-0", w.written["a"][0].Device, "in an order that stays")
	require.Len(t, w.written["b"], 1)
	w.pass(t, 20*time.Second, 30, 50, 0)
	w.pass(t, 20*time.Second, 30, 50, 0)
	require.InDelta(t, 50, w.status(t, "a", 0).AchievedPercent, 0.1)
	require.InDelta(t, 30, w.status(t, "a", 1).AchievedPercent, 0.1)
	w.shares = w.shares[:1]
	w.pass(t, 20*time.Second, 90)
	w.pass(t, 20*time.Second, 90)
	require.Len(t, w.written["a"], 1, "a share that is gone has no entry")
}

func TestClaimsAreWrittenAtTimesOfTheirOwnAndNotTooMany(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 120 {
		w.shares = append(w.shares, guaranteeOf(fmt.Sprintf("claim-%d", i), i, share.GuaranteedBurst, 30))
	}
	config := guarantee.Config{Interval: interval, Now: func() time.Time { return w.now }, Rate: 1e-6, Burst: 7}
	limited := guarantee.New(config, w, w)
	config.Burst = 1e6
	free := guarantee.New(config, w, w)
	most := 0
	for range 5 {
		for i := range w.shares {
			w.shares[i].Wanted += interval / 3
		}
		w.now = w.now.Add(interval / 3)
		before := w.writes
		free.Look(t.Context())
		most = max(most, w.writes-before)
	}
	require.Equal(t, 120, w.writes)
	require.Less(t, most, 80)
	w.writes = 0
	for range 5 {
		for i := range w.shares {
			w.shares[i].Wanted += interval / 3
		}
		w.now = w.now.Add(interval / 3)
		limited.Look(t.Context())
	}
	require.Equal(t, 7, w.writes)
}

// Whatever the sums do, percents are of a card, and no claim is written more often
// than once in an interval.
func TestFiguresAreWithinBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(guaranteeOf("a", 0, share.GuaranteedBurst, 30))
		restarted := false
		looks := rapid.IntRange(1, 40).Draw(r, "looks")
		for range looks {
			step := time.Duration(rapid.Int64Range(0, int64(interval/3)).Draw(r, "wanted"))
			held := time.Duration(rapid.Int64Range(0, int64(step)).Draw(r, "held"))
			s := &w.shares[0]
			if rapid.IntRange(0, 9).Draw(r, "restart") == 9 {
				*s = guaranteeOf("a", 0, share.GuaranteedBurst, 30)
				restarted = true
			}
			s.Wanted, s.Held, s.Throttled, s.Entitled = s.Wanted+step, s.Held+held, s.Throttled+step-held, s.Entitled+held
			w.now = w.now.Add(interval / 3)
			w.keeper.Look(t.Context())
		}
		require.LessOrEqual(r, w.writes, 1+looks/3)
		for i := range w.written["a"] {
			got := w.status(t, "a", i)
			require.GreaterOrEqual(r, got.AchievedPercent, 0.0)
			require.LessOrEqual(r, got.AchievedPercent, 100.0)
			require.GreaterOrEqual(r, got.ThrottledSeconds, 0.0)
			if restarted {
				continue // sums that began anew and passed the old ones meanwhile cannot be told from those that went on
			}
			require.InDelta(r, got.AchievedPercent, got.EntitledPercent, 0.1)
			require.InDelta(r, got.WantedSeconds*(1-got.AchievedPercent/100), got.ThrottledSeconds, 0.2)
		}
	})
}
