// SPDX-License-Identifier: Apache-2.0

//go:build native

package sim_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
)

// cases runs each case of a program by itself.
func cases(t *testing.T, program string) {
	t.Helper()
	source, err := os.ReadFile("testdata/" + program + ".c")
	require.NoError(t, err)
	names := regexp.MustCompile(`\tTEST\((\w+)\)`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(strings.ReplaceAll(name[1], "_", " "), func(t *testing.T) {
			t.Parallel()
			m := newDriver(t, program, simcard.Config{UUID: firstUUID, Memory: 2 << 30}, simcard.Config{UUID: secondUUID, Memory: 2 << 30, Index: 1, Minor: 1})
			m.check(t, program, name[1])
		})
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	cases(t, "engine")
}

func TestGraphs(t *testing.T) {
	t.Parallel()
	cases(t, "graph")
}

// A tenant is a process that keeps the card busy.
type tenant struct {
	cmd *exec.Cmd
	in  io.Closer
}

func (m machine) tenant(t *testing.T, kernel time.Duration, args ...string) *tenant {
	t.Helper()
	cmd := m.command(t, "tenant", append([]string{strconv.FormatInt(kernel.Microseconds(), 10)}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return &tenant{cmd, in}
}

// signal sends a signal to the tenant.
func (a *tenant) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, a.cmd.Process.Signal(signal))
}

func (m machine) card(t *testing.T) *simcard.Card {
	t.Helper()
	card, err := simcard.Open(simcard.Path(m.cards, firstUUID))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, card.Close()) })
	return card
}

func slot(t *testing.T, card *simcard.Card, a *tenant) simcard.Slot {
	t.Helper()
	truth, err := card.Truth()
	require.NoError(t, err)
	found, ok := truth.ByPID(a.cmd.Process.Pid)
	require.True(t, ok, "the card does not know the process")
	return found
}

// runFor waits until the tenant has had the card for so much longer.
func runFor(t *testing.T, card *simcard.Card, a *tenant, busy time.Duration) {
	t.Helper()
	until := slot(t, card, a).Busy + busy
	require.Eventually(t, func() bool { return slot(t, card, a).Busy >= until }, 30*time.Second, time.Millisecond)
}

// shares are the times that each slot had on the card from the first moment at
// which all of them had run to the last after which all did.
func shares(t *testing.T, runs []simcard.Run, slots ...int) []time.Duration {
	t.Helper()
	first, last := time.Duration(0), time.Duration(1<<62)
	for _, number := range slots {
		i := slices.IndexFunc(runs, func(r simcard.Run) bool { return r.Slot == number })
		require.GreaterOrEqual(t, i, 0)
		first = max(first, runs[i].End)
		for _, r := range slices.Backward(runs) {
			if r.Slot == number {
				last = min(last, r.Start)
				break
			}
		}
	}
	require.Less(t, first, last)
	times := make([]time.Duration, len(slots))
	for _, r := range runs {
		if i := slices.Index(slots, r.Slot); i >= 0 {
			times[i] += max(0, min(r.End, last)-max(r.Start, first))
		}
	}
	return times
}

// requireOneAtATime fails where two processes had the card at once.
func requireOneAtATime(t *testing.T, runs []simcard.Run) {
	t.Helper()
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b simcard.Run) int { return int(a.Start - b.Start) })
	for i := 1; i < len(sorted); i++ {
		require.LessOrEqual(t, sorted[i-1].End, sorted[i].Start, "runs %v and %v", sorted[i-1], sorted[i])
	}
}

func newTenants(t *testing.T) (machine, *simcard.Card) {
	t.Helper()
	m := newDriver(t, "tenant", simcard.Config{UUID: firstUUID, Memory: 4 << 30})
	return m, m.card(t)
}

func TestProcessesOfEqualDemandShareTheCardEqually(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		kernels []time.Duration
	}{
		{"two with kernels of the same length", []time.Duration{500 * time.Microsecond, 500 * time.Microsecond}},
		{"one with kernels longer than a turn", []time.Duration{300 * time.Microsecond, 15 * time.Millisecond}},
		{"three", []time.Duration{250 * time.Microsecond, 700 * time.Microsecond, 3 * time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, card := newTenants(t)
			var tenants []*tenant
			var slots []int
			for _, kernel := range test.kernels {
				a := m.tenant(t, kernel)
				tenants, slots = append(tenants, a), append(slots, slot(t, card, a).Number)
			}
			truth, err := card.Truth()
			require.NoError(t, err)
			runFor(t, card, tenants[0], 300*time.Millisecond)
			runs := card.Runs(truth.Runs)
			requireOneAtATime(t, runs)
			times := shares(t, runs, slots...)
			total := time.Duration(0)
			for _, d := range times {
				total += d
			}
			for i, d := range times {
				require.Greater(t, d, total*7/10/time.Duration(len(times)), "process %d of %v", i, times)
			}
		})
	}
}

func TestAProcessAloneHasAllOfTheCard(t *testing.T) {
	t.Parallel()
	m, card := newTenants(t)
	a := m.tenant(t, time.Millisecond)
	truth, err := card.Truth()
	require.NoError(t, err)
	runFor(t, card, a, 100*time.Millisecond)
	runs := card.Runs(truth.Runs)
	// Work was always in the queue, so what was busy is one stretch.
	require.NotEmpty(t, runs)
	busy := time.Duration(0)
	for _, r := range runs {
		busy += r.End - r.Start
	}
	require.GreaterOrEqual(t, busy, (runs[len(runs)-1].End-runs[0].Start)*8/10)
}

func TestTheCardGoesOnWhenItsHolderIsKilled(t *testing.T) {
	t.Parallel()
	m, card := newTenants(t)
	for range 5 {
		a, b := m.tenant(t, 50*time.Millisecond), m.tenant(t, time.Millisecond)
		runFor(t, card, a, 10*time.Millisecond)
		a.signal(t, syscall.SIGKILL)
		_ = a.cmd.Wait()
		truth, err := card.Truth()
		require.NoError(t, err)
		runFor(t, card, b, 50*time.Millisecond)
		// Nobody else runs any more.
		for _, r := range card.Runs(truth.Runs) {
			require.Equal(t, slot(t, card, b).Number, r.Slot)
		}
		require.NoError(t, b.in.Close())
		require.NoError(t, b.cmd.Wait())
	}
}

func TestTheCardGoesOnWhileItsHolderIsStopped(t *testing.T) {
	t.Parallel()
	m, card := newTenants(t)
	a, b := m.tenant(t, 500*time.Microsecond), m.tenant(t, 500*time.Microsecond)
	runFor(t, card, a, 10*time.Millisecond)
	a.signal(t, syscall.SIGSTOP)
	runFor(t, card, b, 200*time.Millisecond)
	a.signal(t, syscall.SIGCONT)
	runFor(t, card, a, 50*time.Millisecond)
	runFor(t, card, b, 50*time.Millisecond)
	for _, one := range []*tenant{a, b} {
		require.NoError(t, one.in.Close())
		require.NoError(t, one.cmd.Wait())
	}
	requireOneAtATime(t, card.Runs(0))
}

func TestKernelsTakeAsLongAsTheySayHoweverOftenTheyAreInterrupted(t *testing.T) {
	t.Parallel()
	m, card := newTenants(t)
	a := m.tenant(t, 7*time.Millisecond, "20")
	other := m.tenant(t, 400*time.Microsecond)
	number := slot(t, card, a).Number
	require.NoError(t, a.cmd.Wait())
	truth, err := card.Truth()
	require.NoError(t, err)
	busy := time.Duration(0)
	for _, r := range card.Runs(0) {
		if r.Slot == number {
			busy += r.End - r.Start
		}
	}
	for _, s := range truth.Slots {
		if s.Number == number {
			require.Equal(t, 20*7*time.Millisecond, s.Busy)
			require.EqualValues(t, 20, s.Launches)
		}
	}
	require.Equal(t, 20*7*time.Millisecond, busy)
	require.NoError(t, other.in.Close())
	require.NoError(t, other.cmd.Wait())
}

func TestCopiesAreInTheLogBesideKernels(t *testing.T) {
	t.Parallel()
	m, card := newTenants(t)
	const launches, bytes, leastForOne = 20, 2_400_000, 100 * time.Microsecond // at 24 GB/s
	a := m.tenant(t, time.Millisecond, strconv.Itoa(launches), strconv.Itoa(bytes))
	number := slot(t, card, a).Number
	require.NoError(t, a.cmd.Wait())
	took := map[uint32]time.Duration{}
	end := map[uint32]time.Duration{}
	for _, r := range card.Runs(0) {
		require.Equal(t, number, r.Slot)
		require.GreaterOrEqual(t, r.Start, end[r.What])
		took[r.What] += r.End - r.Start
		end[r.What] = r.End
	}
	require.Equal(t, launches*time.Millisecond, took[simcard.Kernels])
	require.GreaterOrEqual(t, took[simcard.Copies], launches*leastForOne)
	require.Len(t, took, 2)
}

func TestManyProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	m, card := newTenants(t)
	done := make(chan error)
	const processes = 8
	for i := range processes {
		cmd := m.command(t, "tenant", strconv.Itoa(100+50*i), "100")
		cmd.Stderr = os.Stderr
		go func() { done <- cmd.Run() }()
	}
	for range processes {
		require.NoError(t, <-done)
	}
	requireOneAtATime(t, card.Runs(0))
}
