// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// replace ends the arbiter, and begins another one, that has heard so much of the bell.
func (g gated) replace() (heard uint32) {
	g.disappear()
	g.newGrant()
	heard = g.ledger.at.Bell.Load()
	g.serve()
	return heard
}

// servesAgain waits until a launch that waits is known to the arbiter, and opens the lease for it.
func (g gated) servesAgain(t *testing.T, p *rig.Program, heard uint32) {
	t.Helper()
	d := g.last()
	until(t, "the arbiter to hear of the launch", func() bool {
		return g.ledger.at.Bell.Load() != heard && d.Wants.Load() == 1 && d.Waiting.Load() == 1
	})
	opened := clock()
	g.set(wire.LeaseOpen)
	answer, err := p.Line()
	require.NoError(t, err)
	require.Equal(t, "0", answer.Values["result"], p.Complaints())
	require.NotEmpty(t, g.runs(opened))
}

// waits lets the program wait for the lease, and its warden sleep.
func (g gated) waits(t *testing.T, p *rig.Program) {
	t.Helper()
	require.NoError(t, p.Say("launch 1000000"))
	until(t, "the launch to wait", func() bool { d := g.last(); return d.Waiting.Load() == 1 && d.Wants.Load() == 1 })
	sleepsOn(t, p.PID, warden, mapped(t, p.PID, g.grant.file)+uint64(unsafe.Offsetof(g.grant.at.Lease)))
}

// The pages of another arbiter come one after the other.
func TestAWardenThatWakesBetweenNewPagesMissesNone(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := tenant(t, g.box, 0)
	g.waits(t, p)
	former, lease := g.grant.at, uint64(unsafe.Offsetof(g.grant.at.Lease))
	at := mapped(t, p.PID, g.grant.file)
	grant := variables(t, p.PID, at)
	taker := hold(t, p.PID, liaison)
	// However long the next steps take, the launch goes on waiting for the former arbiter.
	former.Beat.Store(uint64(clock() + time.Hour))
	heard := g.replace()
	taker.advance(t, func() bool { return pointsElsewhere(t, p.PID, grant, at) })
	futexWake(unsafe.Pointer(&former.Lease))
	sleepsOn(t, p.PID, warden, mapped(t, p.PID, g.grant.file)+lease)
	taker.letGo()
	g.servesAgain(t, p, heard)
}

// Whoever begins to wait writes the new demand page before the warden has seen it.
func TestWhatAWaiterWroteIsToldToTheArbiter(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := tenant(t, g.box, 0)
	ask(t, p, "launch 1000", success)
	d := g.last()
	require.EqualValues(t, 1, d.Wants.Load(), "nobody else waits for the card")
	g.mu.Lock()
	at := mapped(t, p.PID, g.demands[0].file)
	g.mu.Unlock()
	demand := variables(t, p.PID, at)
	sleeper := hold(t, p.PID, warden)
	heard := g.replace()
	until(t, "the new pages to be used", func() bool { return pointsElsewhere(t, p.PID, demand, at) })
	require.NoError(t, p.Say("launch 1000000"))
	until(t, "the launch to wait", func() bool { return g.last().Waiting.Load() == 1 })
	sleeper.letGo()
	g.servesAgain(t, p, heard)
}

// Whoever slept while an arbiter came and went sleeps on a page that nobody has any more.
func TestAWardenThatMissedAnArbiterIsThereForTheNext(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := tenant(t, g.box, 0)
	g.waits(t, p)
	sleeper := hold(t, p.PID, warden)
	var heard uint32
	for range 2 {
		at := mapped(t, p.PID, g.grant.file)
		grant := variables(t, p.PID, at)
		heard = g.replace()
		until(t, "the new pages to be used", func() bool { return pointsElsewhere(t, p.PID, grant, at) })
	}
	sleeper.letGo()
	g.servesAgain(t, p, heard)
}

// ARBITERS does more than the few of every day.
func TestEverybodyHasTheCardAgainWithEachNewArbiter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	sharers := []*sharer{
		newSharer(t, r, c, share.GuaranteedBurst, 20, "kernels=100000"),
		newSharer(t, r, c, share.GuaranteedBurst, 30, "processes=2"),
		newSharer(t, r, c, share.GuaranteedBurst, 50, "kernels=2000000", "threads=2"),
	}
	replace := func() {
		require.NoError(t, r.Arbiter().Signal(syscall.SIGKILL))
		_, err := r.StartArbiter()
		require.NoError(t, err)
		until(t, "the arbiter to answer", func() bool { _, err := view(t, r); return err == nil })
	}
	for n := range number(t, "ARBITERS", scaled(12)) {
		stopped := sharers[n%len(sharers)]
		switch n % 4 {
		case 0, 2: // one that may have done nothing yet
			replace()
			replace()
		case 1:
			replace()
		case 3: // one that comes while a process is stopped
			stopped.signal(t, syscall.SIGSTOP)
			replace()
			stopped.signal(t, syscall.SIGCONT)
		}
		if err := rig.Until("everybody to have the card", func() (bool, error) { return haveTheCard(t, r, c, sharers) }); err != nil {
			t.Log(portrait(t, r, c))
			require.NoError(t, err)
		}
	}
}

func view(t *testing.T, r *rig.Rig) (nodeview.Node, error) {
	t.Helper()
	return nodeview.Get(t.Context(), filepath.Join(r.Dir, "run", nodeview.SocketName))
}

// haveTheCard tells whether this arbiter has given the card to all sharers, and each of their processes
// goes on using it.
func haveTheCard(t *testing.T, r *rig.Rig, c *simcard.Card, sharers []*sharer) (bool, error) {
	t.Helper()
	node, err := view(t, r)
	given := 0
	for _, on := range node.Cards {
		for i := range on.Shares {
			if on.Shares[i].Held > 0 {
				given++
			}
		}
	}
	if err != nil || given < len(sharers) {
		return false, err
	}
	before := busyBy(t, c, sharers)
	return true, rig.Until("everybody to use the card", func() (bool, error) {
		for i, now := range busyBy(t, c, sharers) {
			for process, busy := range now {
				if busy <= before[i][process] {
					return false, nil
				}
			}
		}
		return true, nil
	})
}
