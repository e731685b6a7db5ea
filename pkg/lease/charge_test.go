// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// balances of all tenants of the only card, by key.
func balances(s *lease.Scheduler, now lease.Time) map[share.Key]time.Duration {
	all := map[share.Key]time.Duration{}
	for _, t := range s.State(now)[0].Tenants {
		all[t.Key] = t.Balance
	}
	return all
}

func TestWhoIsChargedOwesThoseWhoWantTheCard(t *testing.T) {
	t.Parallel()
	s := lease.New(lease.Config{})
	for key, cores := range map[share.Key]int{"a": 20, "b": 20, "c": 60, "d": 0} {
		s.Put(0, tenant(string(key), "x", share.GuaranteedBurst, card.Percent(cores)))
		s.Wants(0, key, key != "d")
	}
	s.Charge(0, "a", 100*ms)
	require.Equal(t, map[share.Key]time.Duration{"a": -80 * ms, "b": 20 * ms, "c": 60 * ms, "d": 0}, balances(s, 0))
	s.Charge(0, "a", -time.Second)
	s.Charge(0, "of nobody", time.Second)
	s.Charge(0, "d", 50*ms)
	after, sum := balances(s, 0), time.Duration(0)
	for _, balance := range after {
		sum += balance
	}
	require.InDelta(t, 0, sum, 10)
	require.Equal(t, -70*ms, after["a"], "it is owed its part of what another one computed")
	s.Charge(0, "a", time.Hour)
	require.Equal(t, -2*time.Second, balances(s, 0)["a"], "10 s of its part")
	state := s.State(0)[0]
	require.Equal(t, time.Hour+150*ms, state.Overlap)
	require.Equal(t, time.Hour+100*ms, state.Tenants[0].Usage.Held)
	require.Equal(t, time.Hour+100*ms, state.Tenants[0].Usage.Wanted)
}

func TestWhoComputesWhileNobodyElseWantsTheCardOwesNobody(t *testing.T) {
	t.Parallel()
	s := lease.New(lease.Config{})
	s.Put(0, tenant("a", "x", share.GuaranteedBurst, 20))
	s.Put(0, tenant("b", "x", share.GuaranteedBurst, 20))
	s.Wants(0, "a", true)
	s.Charge(0, "a", time.Second)
	require.Equal(t, map[share.Key]time.Duration{"a": 0, "b": 0}, balances(s, 0))
}

// What they compute beside their leases, each second, is a part of what they may have.
func TestWhoIsChargedWaitsForIt(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]share.Policy{"beside a share that has the rest": share.GuaranteedBurst, "beside one that has its cores": share.Fixed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := simulate(t, busy(tenant("a", "x", share.Fixed, 20), ms), busy(tenant("b", "x", other, 50), ms))
			m.run(time.Second)
			for range 20 {
				m.s.Charge(m.now, "a", 150*ms)
				m.decide()
				m.run(m.now + time.Second)
			}
			require.InDelta(t, 20-15, m.shares(15 * time.Second)[0], 1)
			held := m.s.State(m.now)[0].Tenants[0].Usage.Held
			require.InDelta(t, 0.20, held.Seconds()/m.now.Seconds(), 0.01, "what is told of it is what it had")
			m.run(m.now + 4*time.Second)
			require.InDelta(t, 20, m.shares(2 * time.Second)[0], 1, "and it has all of it again")
		})
	}
}

func TestAShareWithoutCeilingThatIsChargedWaitsForIt(t *testing.T) {
	t.Parallel()
	m := simulate(t, busy(tenant("a", "x", share.GuaranteedBurst, 20), ms), busy(tenant("b", "x", share.GuaranteedBurst, 50), ms))
	m.run(time.Second)
	for range 20 {
		m.s.Charge(m.now, "a", 200*ms)
		m.decide()
		m.run(m.now + time.Second)
	}
	// Two of seven of 1.2 s in each second.
	require.InDelta(t, 100*(1.2*2/7-0.2), m.shares(15 * time.Second)[0], 1)
}
