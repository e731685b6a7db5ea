// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// jammed is a card of which a share was closed with work in flight, for another one.
func jammed(t *testing.T) (s *lease.Scheduler, open func() share.Key, pass func(time.Duration)) {
	t.Helper()
	s = lease.New(lease.Config{})
	now := lease.Time(0)
	open = func() share.Key {
		s.Decide(now)
		return s.State(now)[0].Holder
	}
	pass = func(d time.Duration) { now += d; s.Decide(now) }
	s.Put(now, tenant("a", "x", share.BestEffort, 0))
	s.Put(now, tenant("b", "x", share.BestEffort, 0))
	s.Wants(now, "a", true)
	require.EqualValues(t, "a", open())
	s.Wants(now, "b", true)
	for range 20 {
		if pass(ms); open() == "" {
			return s, open, pass
		}
	}
	require.Fail(t, "the turn of a has no end")
	return nil, nil, nil
}

func TestAShareWhoseWorkCannotEndIsOpenedOnceMore(t *testing.T) {
	t.Parallel()
	s, open, pass := jammed(t)
	pass(4 * ms)
	require.Empty(t, open(), "what is in flight is waited for")
	s.Stuck(0, "a")
	require.EqualValues(t, "a", open())
	pass(3 * ms)
	require.Empty(t, open(), "for a shortest turn")
	s.Drained(0, "a")
	require.EqualValues(t, "b", open())
	require.Equal(t, 8*ms, s.State(0)[0].Tenants[0].Usage.Held, "which it is charged for, as for the time in which it drained")
}

func TestAShareWhoseWorkNeverEndsKeepsNobodyForLong(t *testing.T) {
	t.Parallel()
	s, open, pass := jammed(t)
	had := map[share.Key]int{}
	for range 2500 {
		pass(ms)
		s.Stuck(0, "a")
		s.Drained(0, "b")
		had[open()]++
	}
	require.Greater(t, had["b"], 1500, "the others have the card after the drain limit")
	require.Greater(t, had["a"], 20, "and it has another chance now and then")
}
