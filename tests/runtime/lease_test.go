// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

func TestALaunchWaitsWhileTheLeaseIsClosed(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := tenant(t, g.box, 0)
	require.NoError(t, p.Say("launch 1000000"))
	d := g.demand(0)
	until(t, "the launch to wait", func() bool { return d.Waiting.Load() == 1 && d.Wants.Load() == 1 })
	require.Empty(t, g.runs(0), "nothing runs")
	opened := clock()
	g.set(wire.LeaseOpen)
	answer, err := p.Line()
	require.NoError(t, err)
	require.Equal(t, "0", answer.Values["result"], p.Complaints())
	require.NotEmpty(t, g.runs(opened))
	require.Zero(t, d.Waiting.Load())
	require.NotZero(t, d.Waited.Load())
	g.close(d)
	_, err = p.End()
	require.NoError(t, err)
}

func TestAFreeLeaseCostsNothing(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseFree)
	p := tenant(t, g.box, 0)
	for range 10 {
		ask(t, p, "launch 100000", success)
	}
	require.Zero(t, g.demand(0).Wants.Load())
	require.Zero(t, g.ledger.at.Bell.Load())
}

// worker starts a client that keeps a card busy, and lets it begin.
func worker(t *testing.T, g gated, args ...string) *rig.Program {
	t.Helper()
	p := start(t, g.box, nil, "work", args...)
	_, err := p.Expect("ready")
	require.NoError(t, err)
	require.NoError(t, p.Say(fmt.Sprintf("go %d", clock())))
	return p
}

func TestNothingRunsAfterAClosedLeaseIsAcknowledged(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"tiny kernels":              {"kernels=10000"},
		"kernels of a window":       {"kernels=1000000"},
		"long kernels":              {"kernels=20000000"},
		"kernels of all lengths":    {"kernels=20000,200000,1000000,5000000", "by=function"},
		"one function of any time":  {"kernels=20000,200000,1000000,5000000", "by=parameter"},
		"several threads":           {"kernels=100000", "threads=4"},
		"several streams":           {"kernels=100000", "streams=3"},
		"graphs":                    {"kernels=100000", "graph=1", "batch=5"},
		"each kernel is waited for": {"kernels=100000", "batch=1", "ahead=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			g.set(wire.LeaseOpen)
			p := worker(t, g, append([]string{"seconds=60"}, args...)...)
			d := g.demand(0)
			for range scaled(10) {
				began := clock()
				until(t, "work", func() bool { return len(g.runs(began)) > 3 })
				drained := g.close(d)
				time.Sleep(20 * time.Millisecond)
				checked := clock()
				require.False(t, g.busyBetween(drained, checked), "the card works although the lease is closed")
				g.set(wire.LeaseOpen)
			}
			require.NoError(t, p.Signal(syscall.SIGKILL))
		})
	}
}
