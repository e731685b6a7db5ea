// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// greedy is a share with a process, on a card with a peaceful one.
func greedy(t *testing.T, n *node) (dir string, h *helper) {
	t.Helper()
	dir = n.served(t, some("greedy", 1024))
	n.served(t, some("peaceful", 1024))
	h = startHelper(t)
	h.ask(t, "attach", dir)
	return dir, h
}

func TestWhoComputesWithoutALeaseIsFound(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionWithhold)
	a := n.start(t)
	dir, h := greedy(t, n)
	n.usage.compute(h.pid(), 0.9)
	look := connect(t, dir, wireclient.Hello(wire.RoleObserver))
	eventually(t, func() bool { return look.Grant.Flags.Load()&wire.GrantWithheld != 0 }, "it computes, and never had the card")
	require.True(t, contains(n.events.all(), "team-a/greedy ComputeWithoutLease: processes of this share compute on card "), n.events.all())
	require.False(t, contains(n.events.all(), "peaceful"), n.events.all())
	require.Equal(t, 1, a.viewOf(t, "greedy").Findings["ComputeWithoutLease"])
	n.usage.compute(h.pid(), 0.01)
	eventually(t, func() bool { return look.Grant.Flags.Load()&wire.GrantWithheld == 0 }, "it does not any more")
}

func TestWhoComputesWithoutALeaseIsKilledWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	n.start(t)
	_, h := greedy(t, n)
	n.usage.compute(h.pid(), 0.9)
	require.Error(t, h.Wait())
}

func TestWhoMayUseTheWholeCardComputesAsHeLikes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	n.start(t)
	dir := n.served(t, some("free", 1024, with(share.BestEffort, 0)))
	h := startHelper(t)
	h.ask(t, "attach", dir)
	n.usage.compute(h.pid(), 1)
	before := n.usage.computeReads()
	eventually(t, func() bool { return n.usage.computeReads() > before+2 }, "it was looked at")
	require.Empty(t, n.events.all())
	require.Equal(t, "true", h.ask(t, "take", mib))
}

func TestWhoComputesWithoutALeaseIsCharged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	a := n.start(t)
	_, h := greedy(t, n)
	n.usage.compute(h.pid(), 0.5)
	eventually(t, func() bool { return a.viewOf(t, "greedy").Held > 800*time.Millisecond }, "it computes, and never had the card")
	v := a.viewOf(t, "greedy")
	require.Negative(t, v.Balance)
	require.LessOrEqual(t, v.Held, v.Wanted)
	require.Zero(t, a.viewOf(t, "peaceful").Held)

	n.usage.rest()
	quiet := func() {
		before := n.usage.computeReads()
		eventually(t, func() bool { return n.usage.computeReads() > before+2 }, "it was looked at")
	}
	quiet()
	held := a.viewOf(t, "greedy").Held
	quiet()
	require.Equal(t, held, a.viewOf(t, "greedy").Held, "it computes no more, and is charged no more")
	n.usage.compute(h.pid(), 0.5)
	eventually(t, func() bool { return a.viewOf(t, "greedy").Held > held }, "it computes again")
}

// rest has nobody compute.
func (u *usage) rest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.computed = nil
}

func TestNobodyIsChargedWhereThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	watch := n.configure
	n.configure = func(c *arbiter.Config) {
		watch(c)
		c.Watchdog.Uncharged = true
	}
	a := n.start(t)
	_, h := greedy(t, n)
	n.usage.compute(h.pid(), 0.5)
	before := n.usage.computeReads()
	eventually(t, func() bool {
		return n.usage.computeReads() > before+2 && contains(n.events.all(), "team-a/greedy ComputeWithoutLease: ")
	}, "it is told")
	require.Zero(t, a.viewOf(t, "greedy").Held)
}

func TestWhoMayUseTheWholeCardIsNotCharged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	a := n.start(t)
	dir := n.served(t, some("free", 1024, with(share.BestEffort, 0)))
	h := startHelper(t)
	h.ask(t, "attach", dir)
	n.usage.compute(h.pid(), 1)
	before := n.usage.computeReads()
	eventually(t, func() bool { return n.usage.computeReads() > before+2 }, "it was looked at")
	require.Zero(t, a.viewOf(t, "free").Held)
	n.served(t, some("another", 1024))
	eventually(t, func() bool { return a.viewOf(t, "free").Held > 0 }, "it has work in flight from then, which is in the way of others")
}
