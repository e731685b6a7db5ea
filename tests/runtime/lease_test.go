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
	"github.com/tranche-dra/tranche/tests/sandbox"
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
	expect(t, p, "ready")
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
				until(t, "some time to pass", func() bool { return clock() > drained+20*time.Millisecond })
				checked := clock()
				require.False(t, g.busyBetween(drained, checked), "the card works although the lease is closed")
				g.set(wire.LeaseOpen)
			}
			require.NoError(t, p.Signal(syscall.SIGKILL))
		})
	}
}

// begin starts a case of a client, and lets it begin when it is ready.
func begin(t *testing.T, box *sandbox.Box, client, name string) *rig.Program {
	t.Helper()
	p := start(t, box, nil, client, name)
	expect(t, p, "ready")
	require.NoError(t, p.Say("go"))
	return p
}

func expect(t *testing.T, p *rig.Program, word string) {
	t.Helper()
	_, err := p.Expect(word)
	require.NoError(t, err)
}

func TestBulkCopiesWaitForTheLeaseAndSmallOnesDoNot(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := begin(t, g.box, "gate", "copies")
	expect(t, p, "small")
	d := g.demand(0)
	until(t, "the copy to wait", func() bool { return d.Waiting.Load() == 1 })
	g.set(wire.LeaseOpen)
	expect(t, p, "large")
	expect(t, p, "ok")
}

func TestCapturedLaunchesDoNotWait(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := begin(t, g.box, "gate", "captures")
	expect(t, p, "captured")
	d := g.demand(0)
	until(t, "the graph to wait", func() bool { return d.Waiting.Load() == 1 })
	require.Empty(t, g.runs(0))
	g.set(wire.LeaseOpen)
	expect(t, p, "launched")
	expect(t, p, "ok")
}

// alternate opens and closes the lease until the program has said its word.
func (g gated) alternate(t *testing.T, p *rig.Program, word string) {
	t.Helper()
	said := make(chan error, 1)
	go func() {
		_, err := p.Expect(word)
		said <- err
	}()
	d := g.demand(0)
	for {
		g.set(wire.LeaseOpen | wire.LeaseContended)
		select {
		case err := <-said:
			require.NoError(t, err)
			return
		case <-time.After(5 * time.Millisecond):
			g.close(d)
		}
	}
}

func TestProgramsGoOnWhileTheLeaseComesAndGoes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"captures", "values", "contexts", "streams", "children"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			p := start(t, g.box, nil, "gate", name)
			expect(t, p, "ready")
			g.set(wire.LeaseOpen)
			require.NoError(t, p.Say("go"))
			if name == "captures" {
				expect(t, p, "captured")
				expect(t, p, "launched")
			}
			g.alternate(t, p, "ok")
			lines, err := p.End()
			require.NoError(t, err)
			require.Empty(t, lines)
		})
	}
}

// The process has said that nothing is in flight, by its estimate, and records then what it launched.
func TestWhatIsRecordedUnderAClosedLeaseIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := start(t, g.box, nil, "gate", "late")
	expect(t, p, "ready")
	g.set(wire.LeaseOpen)
	require.NoError(t, p.Say("go"))
	expect(t, p, "quiet")
	d := g.demand(0)
	word := g.set(wire.LeaseClosed)
	require.NoError(t, p.Say("launch"))
	expect(t, p, "quiet")
	until(t, "the launch to wait", func() bool { return d.Waiting.Load() == 1 })
	until(t, "the closed lease to be obeyed", func() bool { return d.Ends.Load() == 0 && d.Drained.Load() == word })
	require.NoError(t, p.Say("synchronize"))
	expect(t, p, "synchronized")
	until(t, "what was recorded to have ended", func() bool { return d.Ends.Load() == 0 && d.Drained.Load() == word })
	g.set(wire.LeaseOpen)
	expect(t, p, "ok")
}

// Somebody waits for the card, and this process does not use it.
func TestACardThatIsNotUsedIsGivenUp(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := tenant(t, g.box, 0)
	d := g.demand(0)
	for range 5 {
		ask(t, p, "launch 100000", success)
		require.EqualValues(t, 1, d.Wants.Load(), "while nobody else waits")
		bell := g.ledger.at.Bell.Load()
		g.set(wire.LeaseOpen | wire.LeaseContended)
		until(t, "the card to be given up", func() bool { return d.Wants.Load() == 0 })
		until(t, "the bell", func() bool { return g.ledger.at.Bell.Load() != bell })
		ask(t, p, "launch 100000", success)
		g.set(wire.LeaseOpen)
	}
	g.set(wire.LeaseOpen | wire.LeaseTell)
	g.close(d)
	until(t, "the card to be given up", func() bool { return d.Wants.Load() == 0 })
	bell := g.ledger.at.Bell.Load()
	g.set(wire.LeaseOpen | wire.LeaseTell)
	ask(t, p, "launch 100000", success)
	require.EqualValues(t, 1, d.Wants.Load(), "a launch under a lent card tells")
	require.NotEqual(t, bell, g.ledger.at.Bell.Load())
}

// The lengths of kernels are known after a while: then a closed lease waits for
// one of them, or for a window of them, and no more.
func TestWhatIsInFlightIsBoundedByItsTime(t *testing.T) {
	t.Parallel()
	for _, kernel := range []time.Duration{10 * time.Microsecond, 200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(kernel.String(), func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			g.set(wire.LeaseOpen)
			// So much is submitted at once, if nobody bounds it.
			const submitted = 200 * time.Millisecond
			p := worker(t, g, "seconds=60", fmt.Sprint("kernels=", kernel.Nanoseconds()), fmt.Sprint("batch=", min(int(submitted/kernel), 512)), "ahead=4")
			d := g.demand(0)
			until(t, "work", func() bool { return len(g.runs(0)) > 40 })
			least := time.Hour
			for range 10 {
				least = min(least, g.busyAfterClosing(d))
				g.set(wire.LeaseOpen)
				began := clock()
				until(t, "work again", func() bool { return len(g.runs(began)) > 2 })
			}
			require.Less(t, least, 4*handWindow+2*kernel, "work in flight")
			require.NoError(t, p.Signal(syscall.SIGKILL))
		})
	}
}

// busyAfterClosing closes the lease and returns for how long the card works until it is obeyed.
func (g gated) busyAfterClosing(d *wire.Demand) (busy time.Duration) {
	closed := clock()
	drained := g.close(d)
	for _, run := range g.share.Card.Runs(0) {
		if run.End > closed && run.Start < drained {
			busy += run.End - max(run.Start, closed)
		}
	}
	return busy
}

func TestAWaiterThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	p := tenant(t, g.box, 0)
	require.NoError(t, p.Say("launch 1000000"))
	until(t, "the launch to wait", func() bool { return g.demand(0).Waiting.Load() == 1 })
	require.NoError(t, p.Signal(syscall.SIGKILL))
	other := tenant(t, g.box, 0)
	require.NoError(t, other.Say("launch 1000000"))
	until(t, "the launch to wait", func() bool { return g.demand(1).Waiting.Load() == 1 })
	g.set(wire.LeaseOpen)
	answer, err := other.Line()
	require.NoError(t, err)
	require.Equal(t, "0", answer.Values["result"])
}

// timetable gives the share a turn for the time without an arbiter.
func (g gated) timetable(period, start, length time.Duration) {
	g.grant.at.AlonePeriod.Store(uint64(period))
	g.grant.at.AloneStart.Store(uint64(start))
	g.grant.at.AloneLength.Store(uint64(length))
}

// keepsTo counts the runs that began after a time, and those that began outside of the turn.
func (g gated) keepsTo(after, period, start, length time.Duration) (all, outside int) {
	for _, run := range g.runs(after) {
		all++
		if at := (run.Start - start + period) % period; at > length {
			outside++
		}
	}
	return all, outside
}

func TestWithoutAnArbiterTheTimetableRules(t *testing.T) {
	t.Parallel()
	const period, start, length = 200 * time.Millisecond, 50 * time.Millisecond, 60 * time.Millisecond
	for name, leave := range map[string]func(g gated){
		"it is killed":  func(g gated) { g.disappear() },
		"it is stopped": func(g gated) { g.setBeats(false) },
		"it is stopped, and had nobody else to think of": func(g gated) {
			g.grant.at.Window.Store(uint64(40 * handWindow))
			g.setBeats(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			g.timetable(period, start, length)
			g.set(wire.LeaseOpen)
			p := worker(t, g, "seconds=60", "kernels=200000", "ahead=16")
			until(t, "work", func() bool { return len(g.runs(0)) > 10 })
			d := g.demand(0)
			word := g.set(wire.LeaseClosed)
			until(t, "the closed lease to be obeyed", func() bool { return d.Drained.Load() == word })
			left := clock()
			leave(g)
			until(t, "work without an arbiter", func() bool { all, _ := g.keepsTo(left, period, start, length); return all > 300 })
			all, outside := g.keepsTo(left, period, start, length)
			require.Less(t, outside, all/5, "of %d runs began outside of the turn", all)

			// It comes back, and its word rules again.
			if name == "it is killed" {
				g.newGrant()
				g.serve()
				until(t, "the process to come back", func() bool { return g.last() != d })
			}
			g.setBeats(true)
			d = g.last()
			until(t, "the launches to wait", func() bool { return d.Waiting.Load() == 1 && d.Wants.Load() == 1 })
			g.set(wire.LeaseOpen)
			again := clock()
			until(t, "work", func() bool { _, outside := g.keepsTo(again, period, start, length); return outside > 50 })
			require.NoError(t, p.Signal(syscall.SIGKILL))
		})
	}
}

func TestWithoutAnArbiterLaunchesAreRefusedInTheEnd(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(g gated){
		"it is killed":  func(g gated) { g.disappear() },
		"it is stopped": func(g gated) { g.setBeats(false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			p := tenant(t, g.box, 0)
			leave(g)
			ask(t, p, "launch 1000", systemNotReady)
			complains(t, p)
			g.setBeats(true)
			if name == "it is killed" {
				g.serve()
			}
			g.set(wire.LeaseOpen)
			require.NoError(t, rig.Until("launches", func() (bool, error) {
				answer, err := p.Ask("launch 1000")
				return answer.Values["result"] == "0", err
			}))
		})
	}
}
