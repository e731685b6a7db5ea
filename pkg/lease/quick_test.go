// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// surprises works with kernels that have ended as soon as it is closed, and has one that takes long after so
// many of its turns.
func (w *worker) surprises(short, long time.Duration, turns int) *worker {
	seen, n := 0, 0
	w.kernel = func() time.Duration {
		if len(w.wait) == seen {
			return short
		}
		seen = len(w.wait)
		if n++; n <= turns {
			return short
		}
		n = 0
		return long
	}
	return w.thinks(us)
}

func TestLongKernelOfWhoDrainedAtOnceUntilThenIsItsOwn(t *testing.T) {
	t.Parallel()
	for _, policy := range []share.Policy{share.Fixed, share.GuaranteedBurst} {
		for _, kernel := range []time.Duration{20 * ms, 90 * ms} {
			// The other one has little in flight, so that the card is not divided equally where both have it.
			m := simulate(t,
				busy(tenant("a", "x", policy, 50), 0).surprises(50*us, kernel, 4),
				busy(tenant("b", "x", share.GuaranteedBurst, 50), 20*us).thinks(80*us))
			m.run(11 * time.Second)
			require.Less(t, m.shares(10 * time.Second)[0], 50.5, "%s %s", policy, kernel)
		}
	}
}

func TestWhoDoesNotDrainAtOnceIsWaitedForAgain(t *testing.T) {
	t.Parallel()
	s := scheduler(burst("a", 50), burst("b", 50))
	s.Wants(0, "a", true)
	s.Wants(0, "b", true)
	now := lease.Time(0)
	// next changes, and when they are.
	next := func() []lease.Change {
		for {
			d := s.Decide(now)
			if len(d.Changes) > 0 {
				return d.Changes
			}
			require.Less(t, d.Next, lease.Never)
			now = d.Next
		}
	}
	open := lease.Grant{State: lease.Open, Contended: true}
	changes := next()
	for len(changes) != 2 || changes[0].Key != "a" || changes[1].Key != "b" {
		for _, c := range changes {
			if c.State == lease.Closed {
				now += 100 * us
				s.Drained(now, c.Key)
			}
		}
		changes = next()
	}
	require.Equal(t, []lease.Change{{Key: "a"}, {Key: "b", Grant: open}}, changes)
	closed := now
	require.Equal(t, []lease.Change{{Key: "b"}}, next(), "what the other one has in flight goes on")
	require.Equal(t, closed+200*us, now)
	s.Drained(now+50*us, "b")
	require.Equal(t, closed+100*ms, s.Decide(now+50*us).Next, "it is waited for as anybody")
	now += 50 * ms
	s.Drained(now, "a")
	require.Equal(t, []lease.Change{{Key: "b", Grant: open}}, next())
}

func TestOfflineWorkWaitsForOnlineWorkThatDrainedAtOnceUntilThen(t *testing.T) {
	t.Parallel()
	on := busy(tenant("on", "x", share.Fixed, 30), 0).surprises(50*us, 10*ms, 4).class(share.Online)
	m := simulate(t, on, busy(tenant("off", "x", share.BestEffort, 0), 200*us).offline(50))
	m.run(10 * time.Second)
	var long []time.Duration
	for _, took := range on.took {
		if took >= 10*ms {
			long = append(long, took)
		}
	}
	require.Greater(t, len(long), 50)
	require.Less(t, quantile(long, 0.5), 11*ms, "nothing runs beside it")
}
