// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// lengths of kernels: the same for all, or each tenant's own mixture.
var lengths = map[string]func(i int) func() time.Duration{
	"50us":  func(int) func() time.Duration { return always(50 * us) },
	"200us": func(int) func() time.Duration { return always(200 * us) },
	"1ms":   func(int) func() time.Duration { return always(ms) },
	"5ms":   func(int) func() time.Duration { return always(5 * ms) },
	"20ms":  func(int) func() time.Duration { return always(20 * ms) },
	"each its own": func(i int) func() time.Duration {
		return always([]time.Duration{20 * ms, 50 * us, 5 * ms, ms, 200 * us}[i%5])
	},
	"mixed": func(i int) func() time.Duration {
		random := rand.New(rand.NewPCG(11, uint64(i)))
		return func() time.Duration {
			return []time.Duration{50 * us, 50 * us, 200 * us, 200 * us, ms, ms, 5 * ms, 20 * ms}[random.IntN(8)]
		}
	},
}

func TestBusySharesGetTheirPercent(t *testing.T) {
	t.Parallel()
	equal := make([]card.Percent, 16)
	for i := range equal {
		equal[i] = 6
	}
	for _, cores := range [][]card.Percent{{20, 30, 50}, {10, 90}, {25, 75}, {20, 20, 20, 20, 20}, equal} {
		for _, policy := range []share.Policy{share.Fixed, share.GuaranteedBurst, share.NativeBurst} {
			for name, kernels := range lengths {
				for _, foretells := range []time.Duration{0, bellDelay + wakeDelay} {
					t.Run(fmt.Sprint(cores, policy, name, " foretells ", foretells), func(t *testing.T) {
						t.Parallel()
						testShares(t, cores, policy, kernels, name == "mixed" || len(cores) == 16, foretells)
					})
				}
			}
		}
	}
}

func testShares(t *testing.T, cores []card.Percent, policy share.Policy, kernels func(i int) func() time.Duration, coarse bool, foretells time.Duration) {
	t.Helper()
	var workers []*worker
	var sum card.Percent
	for i, c := range cores {
		w := busy(tenant(string(rune('a'+i)), "x", policy, c), 0)
		w.kernel = kernels(i)
		w.foretells = foretells
		workers = append(workers, w)
		sum += c
	}
	if policy == share.Fixed {
		sum = 100
	}
	m := simulate(t, workers...)
	m.run(11 * time.Second)
	// One kernel of 20 ms is 2 points of a second, whoever decides; that shows where a turn is
	// one kernel, now and then.
	grain := 2.0
	if coarse {
		grain = 2.5
	}
	ten := m.shares(10 * time.Second)
	for i, c := range cores {
		want := 100 * float64(c) / float64(sum)
		require.InDelta(t, want, ten[i], 0.5, "over 10 s")
		for end := 2 * time.Second; end <= m.now; end += time.Second {
			require.InDelta(t, want, m.sharesUntil(end, time.Second)[i], grain, "over 1 s")
		}
	}
	testSums(t, m.s, m.now)
}

// testSums of a scheduler whose tenants are all still there.
func testSums(t *testing.T, s *lease.Scheduler, now lease.Time) {
	t.Helper()
	for _, c := range s.State(now) {
		var held time.Duration
		for _, o := range c.Tenants {
			held += o.Usage.Held
			require.Equal(t, o.Usage.Wanted, o.Usage.Held+o.Usage.Throttled)
		}
		require.Equal(t, held, c.Held+c.Draining)
		require.Equal(t, now, c.Held+c.Draining+c.Idle)
	}
}

func TestTenantThatLaunchesOneKernelAtATimeGetsItsPercent(t *testing.T) {
	t.Parallel()
	m := simulate(t,
		busy(tenant("a", "x", share.GuaranteedBurst, 30), 50*us).thinks(10*us),
		busy(tenant("b", "x", share.GuaranteedBurst, 70), ms))
	m.run(11 * time.Second)
	c := m.s.State(m.now)[0]
	held := c.Tenants[0].Usage.Held.Seconds() / m.now.Seconds() * 100
	require.InDelta(t, 30, held, 0.5, "the time between its kernels is its own")
}

func TestAShareWithoutCoresKeepsToItsCeiling(t *testing.T) {
	t.Parallel()
	for _, policy := range []share.Policy{share.GuaranteedBurst, share.NativeBurst} {
		m := simulate(t, busy(tenant("a", "x", policy, 0), ms).ceiling(20))
		m.run(4 * time.Second)
		require.InDelta(t, 20, m.shares(3 * time.Second)[0], 1)
	}
}
