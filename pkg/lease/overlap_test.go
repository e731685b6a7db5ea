// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Where work of two tenants is in flight the hardware divides the card: each is charged its part of
// that time. Who has a ceiling gets its percent all the same, and no more.
func TestTenantsWithACeilingGetTheirPartBesideLongKernels(t *testing.T) {
	t.Parallel()
	offline := func(kernel time.Duration) *worker {
		spec := tenant("off", "x", share.GuaranteedBurst, 0)
		spec.Class, spec.Limits.OfflineCores = share.Offline, 100
		return busy(spec, kernel)
	}
	for name, tc := range map[string]struct {
		worker, beside *worker
		want           float64
	}{
		"fixed beside kernels that drain in time":     {busy(tenant("a", "x", share.Fixed, 50), ms), busy(tenant("b", "x", share.GuaranteedBurst, 50), 90*ms), 50},
		"fixed beside kernels that do not":            {busy(tenant("a", "x", share.Fixed, 50), ms), busy(tenant("b", "x", share.GuaranteedBurst, 50), 250*ms), 50},
		"fixed beside kernels of half a second":       {busy(tenant("a", "x", share.Fixed, 50), ms), busy(tenant("b", "x", share.GuaranteedBurst, 50), 500*ms), 50},
		"a small fixed one beside those":              {busy(tenant("a", "x", share.Fixed, 20), ms), busy(tenant("b", "x", share.BestEffort, 0), 300*ms), 20},
		"burst with a ceiling beside those":           {busy(tenant("a", "x", share.GuaranteedBurst, 50), ms).ceiling(60), busy(tenant("b", "x", share.BestEffort, 0), 500*ms), 60},
		"fixed beside short offline kernels":          {busy(tenant("a", "x", share.Fixed, 50), ms), offline(200 * us), 50},
		"fixed beside offline kernels":                {busy(tenant("a", "x", share.Fixed, 50), ms), offline(5 * ms), 50},
		"fixed beside long offline kernels":           {busy(tenant("a", "x", share.Fixed, 20), ms), offline(40 * ms), 20},
		"burst with a ceiling beside offline kernels": {busy(tenant("a", "x", share.GuaranteedBurst, 50), ms).ceiling(80), offline(ms), 80},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := simulate(t, tc.worker, tc.beside)
			m.run(22 * time.Second)
			got := m.shares(20 * time.Second)
			require.InDelta(t, tc.want, got[0], 1.5, "%v", got)
			require.Less(t, m.idle(20*time.Second), 2.0)
		})
	}
}

// Of kernels that are in flight of several processes each has one of the hardware's turns.
func TestProcessesHaveTheHardwaresTurns(t *testing.T) {
	t.Parallel()
	s := lease.New(lease.Config{})
	for _, key := range []share.Key{"a", "b"} {
		s.Put(0, tenant(string(key), "x", share.GuaranteedBurst, 50))
		s.Wants(0, key, true)
	}
	s.Processes(0, "a", 4)
	now := s.Decide(0).Next
	held := func(key share.Key) time.Duration {
		for _, t := range s.State(now)[0].Tenants {
			if t.Key == key {
				return t.Usage.Held
			}
		}
		return -1
	}
	for held("b") == 0 { // until the other one, which never drains, is waited for no longer
		before := now
		now = s.Decide(now).Next
		require.Greater(t, now, before)
	}
	a, b := held("a"), held("b")
	now += 10 * ms
	require.Equal(t, 8*ms, held("a")-a)
	require.Equal(t, 2*ms, held("b")-b)
}
