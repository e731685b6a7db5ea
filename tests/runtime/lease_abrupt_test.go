// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// The driver waits for what runs in a context that is destroyed, and so does the gate.
func TestWhatRunsInAContextThatEndsIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"contexts", "primary"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			g.set(wire.LeaseOpen)
			p := begin(t, g.box, "abrupt", name)
			for range scaled(10) {
				began := clock()
				until(t, "work", func() bool { return len(g.runs(began)) > 1 })
				drained := g.close(g.demand(0))
				until(t, "some time to pass", func() bool { return clock() > drained+60*time.Millisecond })
				checked := clock()
				require.False(t, g.busyBetween(drained, checked), "the card works although the lease is closed")
				g.set(wire.LeaseOpen)
			}
			require.NoError(t, p.Signal(syscall.SIGKILL))
		})
	}
}

// What is launched behind a wait fills the stream's queue, and the gate adds little to it. It is
// known although it is not recorded one by one.
func TestAStreamThatWaitsHoldsAsMuchAsEver(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := begin(t, g.box, "abrupt", "waits")
	expect(t, p, "quiet")
	d := g.demand(0)
	g.close(d)
	g.set(wire.LeaseOpen)
	began := clock()
	require.NoError(t, p.Say("on"))
	until(t, "what was recorded by itself to have run", func() bool { return d.Wants.Load() == 1 && g.busyBetween(began+30*time.Millisecond, began+time.Hour) })
	drained := g.close(d)
	until(t, "some time to pass", func() bool { return clock() > drained+20*time.Millisecond })
	checked := clock()
	require.False(t, g.busyBetween(drained, checked), "the card works although the lease is closed")
	expect(t, p, "quiet")
}

func TestThreadsThatAreCancelledWaitForNothingMore(t *testing.T) {
	t.Parallel()
	if rig.Flavour() == "asan" {
		t.Skip("AddressSanitizer takes the stack of a thread that was cancelled for overrun")
	}
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := begin(t, g.box, "abrupt", "cancelled")
	expect(t, p, "quiet")
	g.set(wire.LeaseOpen | wire.LeaseContended)
	d := g.demand(0)
	until(t, "the card to be given up", func() bool { return d.Wants.Load() == 0 })
	require.NoError(t, p.Say("on"))
	expect(t, p, "ok")
}
