// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// refused wants that a process that starts now gets no driver, in bounded time and
// with one line that says why.
func refused(t *testing.T, p place) {
	t.Helper()
	client := start(t, p.box, nil, "tenant")
	within(t, 40*time.Second, "cuInit without an arbiter", func() error {
		_, err := client.Ask("init")
		return err
	})
	// It may be asked again, and says the same; the line is not repeated.
	ask(t, client, "init", systemNotReady)
	require.Contains(t, complains(t, client), "arbiter")
}

func TestWithoutAnArbiterProgramsStartNotWithoutLimits(t *testing.T) {
	t.Parallel()
	t.Run("it was killed", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, 256)
		p.signal(t, syscall.SIGKILL)
		refused(t, p)
	})
	t.Run("it is stopped", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, 256)
		p.signal(t, syscall.SIGSTOP)
		refused(t, p)
		p.signal(t, syscall.SIGCONT)
		ask(t, tenant(t, p.box, 0), "take alloc 1048576", success)
	})
	t.Run("the box has no share", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, 256)
		box, err := p.rig.Box(rig.BoxOptions{})
		require.NoError(t, err)
		client := start(t, box, nil, "tenant")
		ask(t, client, "init", systemNotReady)
		complains(t, client)
	})
	t.Run("its share.json is of a newer version", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, 256)
		file := filepath.Join(p.share.Dir, wire.ShareFile)
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		aside := filepath.Join(p.share.Dir, ".aside")
		require.NoError(t, os.WriteFile(aside, []byte(strings.Replace(string(content), `"version": 1`, `"version": 99`, 1)), 0o444))
		require.NoError(t, os.Rename(aside, file))
		require.NoError(t, rig.Until("the arbiter to see it", func() (bool, error) {
			book, refusal := rig.OpenLedger(t.Context(), p.share)
			if refusal == nil {
				return false, book.Close()
			}
			return true, nil
		}))
		client := start(t, p.box, nil, "tenant")
		ask(t, client, "init", systemNotReady)
		complains(t, client)
	})
}

// signal to the arbiter.
func (p place) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.rig.Arbiter().Signal(s))
}

// restart starts an arbiter and waits until it serves.
func (p place) restart(t *testing.T) {
	t.Helper()
	_, err := p.rig.StartArbiter()
	require.NoError(t, err)
	require.NoError(t, p.rig.Served(p.share))
}

func TestARestartedArbiterFindsTheLedgerAsItWas(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 512)
			client := tenant(t, p.box, 0)
			ask(t, client, fmt.Sprint("take alloc ", 64*rig.MiB), success)
			ask(t, client, fmt.Sprint("take async ", 32*rig.MiB), success)
			before := p.settled(t)
			for range 3 {
				p.signal(t, s)
				// While nobody serves, the process goes on with the limit that it knows.
				ask(t, client, fmt.Sprint("take vmm ", 16*rig.MiB), success)
				ask(t, client, fmt.Sprint("take vmm ", 512*rig.MiB), outOfMemory)
				ask(t, client, "drop", success)
				p.restart(t)
				require.Equal(t, before, p.settled(t))
			}
			// Both count together, whoever served them at first.
			other := tenant(t, p.box, 0)
			fillUp(t, other, "alloc", 16*rig.MiB)
			ask(t, client, fmt.Sprint("take alloc ", 32*rig.MiB), outOfMemory)
			p.settled(t)
			p.neverAbove(t)
			require.NoError(t, client.Signal(syscall.SIGKILL))
			require.NoError(t, other.Signal(syscall.SIGKILL))
			p.gone(t)
		})
	}
}

func TestWhoDiedWhileNobodyServedIsFoundOut(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client, survivor := tenant(t, p.box, 0), tenant(t, p.box, 0)
	ask(t, client, fmt.Sprint("take alloc ", 128*rig.MiB), success)
	ask(t, survivor, fmt.Sprint("take alloc ", 32*rig.MiB), success)
	p.signal(t, syscall.SIGKILL)
	require.NoError(t, client.Signal(syscall.SIGKILL))
	require.Error(t, client.Wait())
	p.restart(t)
	require.Less(t, p.settled(t), 128*rig.MiB)
	ask(t, survivor, fmt.Sprint("take alloc ", 128*rig.MiB), success)
}

func TestASecondArbiterStandsByAndTakesOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := tenant(t, p.box, 0)
	ask(t, client, fmt.Sprint("take alloc ", 64*rig.MiB), success)
	held := p.settled(t)
	first := p.rig.Arbiter()
	_, err := p.rig.StartArbiter()
	require.NoError(t, err)
	require.NoError(t, rig.Until("the second arbiter to stand by", func() (bool, error) {
		return strings.Contains(p.rig.Log(), "Standing by"), nil
	}))
	require.NoError(t, first.Signal(syscall.SIGKILL))
	require.NoError(t, p.rig.Served(p.share))
	require.Equal(t, held, p.settled(t))
}

// Whenever the arbiter dies, and whoever is in the middle of what, nobody is ever
// above the limit and nobody is left behind.
func TestTheArbiterDiesAgainAndAgainWhileProcessesRace(t *testing.T) {
	t.Parallel()
	const processes, threads = 3, 2
	p := newPlace(t, 1024)
	racing := make([]*rig.Program, processes)
	for i := range racing {
		racing[i] = start(t, p.box, nil, "storm", "tells", strconv.Itoa(threads), strconv.Itoa(scaled(150)))
		_, err := racing[i].Expect("races")
		require.NoError(t, err)
	}
	deaths := 0
	for ; running(racing) && deaths < 50; deaths++ {
		p.signal(t, syscall.SIGKILL)
		p.restart(t)
		// Where all of them die before they have answered, it is right that programs are refused in the end.
		if restarted := clock(); deaths%2 == 0 {
			for _, program := range racing {
				goesOn(t, program, threads, restarted)
			}
		}
	}
	t.Logf("it died %d times", deaths)
	require.NotZero(t, deaths)
	for _, program := range racing {
		_, err := program.End()
		require.NoError(t, err)
	}
	p.gone(t)
}

// running tells whether one of the programs has not ended.
func running(programs []*rig.Program) bool {
	for _, p := range programs {
		select {
		case <-p.Done():
		default:
			return true
		}
	}
	return false
}

// goesOn waits until each thread of a program that tells of its rounds has ended one after that time, or
// the program has ended.
func goesOn(t *testing.T, p *rig.Program, threads int, after time.Duration) {
	t.Helper()
	for gone := map[string]bool{}; len(gone) < threads; {
		line, err := p.Line()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if at, ok := line.Number("at"); ok && time.Duration(at) > after {
			gone[line.Values["racer"]] = true
		}
	}
}

func TestARemovedSocketHurtsNobodyWhoIsConnected(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := tenant(t, p.box, 0)
	require.NoError(t, os.Remove(filepath.Join(p.share.Dir, wire.SocketName)))
	ask(t, client, fmt.Sprint("take alloc ", 64*rig.MiB), success)
	ask(t, client, "launch 1000", success)
	// The arbiter notices, and a new process gets in.
	require.NoError(t, rig.Until("the socket to be back", func() (bool, error) {
		other := start(t, p.box, nil, "tenant")
		answer, err := other.Ask("init")
		return err == nil && answer.Values["result"] == "0", err
	}))
	p.settled(t)
}

// A stopped arbiter answers nobody. What is known goes on, what must be asked
// for is refused in bounded time, and nothing is lost when it wakes.
func TestAStoppedArbiterHoldsNobodyUpForEver(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := tenant(t, p.box, 0)
	p.signal(t, syscall.SIGSTOP)
	ask(t, client, fmt.Sprint("take alloc ", 64*rig.MiB), success)
	ask(t, client, fmt.Sprint("take pool ", 16*rig.MiB), success)
	ask(t, client, "drop", success)
	within(t, 40*time.Second, "a launch that loads a module", func() error {
		_, err := client.Ask("launch 1000")
		return err
	})
	require.LessOrEqual(t, fillUp(t, client, "alloc", 32*rig.MiB), 12)
	p.signal(t, syscall.SIGCONT)
	p.settled(t)
	p.neverAbove(t)
}

// What could not be measured while the arbiter was stopped does not stay charged
// by its estimate, although the program asks for nothing more.
func TestAnArbiterThatWakesSettlesWhatWasOwed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := tenant(t, p.box, 0)
	p.signal(t, syscall.SIGSTOP)
	answer, err := client.Ask("launch 1000")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(systemNotReady), answer.Values["result"], "its module cannot be loaded")
	p.signal(t, syscall.SIGCONT)
	p.settled(t)
}

// Without an arbiter for long, launches are refused with one line,
// and go on when there is one again.
func TestLaunchesEndWithTheArbiterAndComeBackWithIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 256)
	client := tenant(t, p.box, 0)
	ask(t, client, "launch 1000", success)
	p.signal(t, syscall.SIGKILL)
	ask(t, client, "launch 1000", success)
	require.NoError(t, rig.Until("launches to be refused", func() (bool, error) {
		answer, err := client.Ask("launch 1000")
		return err == nil && answer.Values["result"] == strconv.Itoa(systemNotReady), err
	}))
	require.Contains(t, complains(t, client), "arbiter")
	p.restart(t)
	require.NoError(t, rig.Until("launches to go on", func() (bool, error) {
		answer, err := client.Ask("launch 1000")
		return err == nil && answer.Values["result"] == strconv.Itoa(success), err
	}))
	p.settled(t)
}

func TestAnEndedShareAllocatesNothingMore(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 256)
	client := tenant(t, p.box, 0)
	ask(t, client, fmt.Sprint("take alloc ", 16*rig.MiB), success)
	require.NoError(t, os.Remove(filepath.Join(p.share.Dir, wire.ShareFile)))
	require.NoError(t, rig.Until("the share to end", func() (bool, error) {
		answer, err := client.Ask(fmt.Sprint("take alloc ", rig.MiB))
		return err == nil && answer.Values["result"] != strconv.Itoa(success), err
	}))
	// What it has it can still free.
	ask(t, client, "drop", success)
	require.NoError(t, client.Signal(syscall.SIGKILL))
}
