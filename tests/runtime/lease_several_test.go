// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// newGatedMany are two shares in one box, each with an arbiter of its own: of one card, or of
// a card each.
func newGatedMany(t *testing.T, cards int) (first, second gated) {
	t.Helper()
	need(t)
	r, err := rig.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	card, err := r.Card(simcard.Config{})
	require.NoError(t, err)
	one, err := r.Share(card, 512)
	require.NoError(t, err)
	if cards > 1 {
		card, err = r.Card(simcard.Config{})
		require.NoError(t, err)
	}
	other, err := r.Share(card, 512)
	require.NoError(t, err)
	hands := []*hand{newHand(t, one), newHand(t, other)}
	box := newBox(t, r, one, other)
	return gated{hands[0], r, box}, gated{hands[1], r, box}
}

func TestALaunchPassesUnderAnyLeaseOfItsCard(t *testing.T) {
	t.Parallel()
	a, b := newGatedMany(t, 1)
	p := tenant(t, a.box, 0)
	for _, open := range []gated{a, b, a} {
		began := clock()
		require.NoError(t, p.Say("launch 1000000"))
		until(t, "the launch to wait for both", func() bool {
			return a.demand(0).Waiting.Load() == 1 && b.demand(0).Waiting.Load() == 1
		})
		require.Empty(t, a.runs(began), "nothing runs")
		open.set(wire.LeaseOpen)
		answer, err := p.Line()
		require.NoError(t, err)
		require.Equal(t, "0", answer.Values["result"], p.Complaints())
		open.close(open.demand(0))
	}
}

func TestEachCardHasALeaseOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := newGatedMany(t, 2)
	a.set(wire.LeaseOpen)
	p := worker(t, a, "seconds=60", "kernels=200000", "devices=2", "batch=4")
	until(t, "a launch to wait for the other card", func() bool { return b.demand(0).Waiting.Load() == 1 })
	require.NotEmpty(t, a.runs(0))
	require.Empty(t, b.runs(0))
	b.set(wire.LeaseOpen)
	until(t, "work on both", func() bool { return len(a.runs(0)) > 20 && len(b.runs(0)) > 20 })
	drained := a.close(a.demand(0))
	until(t, "a launch to wait for the first card", func() bool { return a.demand(0).Waiting.Load() == 1 })
	b.close(b.demand(0))
	require.False(t, a.busyBetween(drained, clock()), "the card works although the lease is closed")
	again := clock()
	a.set(wire.LeaseOpen)
	b.set(wire.LeaseOpen)
	until(t, "work on both again", func() bool { return len(a.runs(again)) > 3 && len(b.runs(again)) > 3 })
	require.NoError(t, p.Signal(syscall.SIGKILL))
}

func TestAProgramThatNeverWaitsForItsWorkEndsAsEver(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := begin(t, g.box, "gate", "unfinished")
	expect(t, p, "ok")
	_, err := p.End()
	require.NoError(t, err)
	ask(t, tenant(t, g.box, 0), "launch 100000", success)
}

func TestAProgramThatReplacesAnotherIsGatedToo(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := begin(t, g.box, "gate", "replaced")
	expect(t, p, "ready")
	closed := clock()
	g.set(wire.LeaseClosed)
	require.NoError(t, p.Say("go"))
	until(t, "the launch to wait", func() bool { return g.demand(1).Waiting.Load() == 1 })
	require.Empty(t, g.runs(closed), "nothing runs")
	g.set(wire.LeaseOpen)
	expect(t, p, "ok")
	_, err := p.End()
	require.NoError(t, err)
}

func TestALaunchOnSeveralCardsIsWaitedForAsOthersAre(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := begin(t, g.box, "gate", "together")
	until(t, "the launch to wait", func() bool { return g.demand(0).Waiting.Load() == 1 })
	require.Empty(t, g.runs(0), "nothing runs")
	for range 5 {
		began := clock()
		g.set(wire.LeaseOpen)
		until(t, "work", func() bool { return len(g.runs(began)) > 3 })
		drained := g.close(g.demand(0))
		until(t, "a launch to wait", func() bool { return g.demand(0).Waiting.Load() == 1 })
		require.False(t, g.busyBetween(drained, clock()), "the card works although the lease is closed")
	}
	g.set(wire.LeaseOpen)
	expect(t, p, "ok")
}
