// SPDX-License-Identifier: Apache-2.0

package simcard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
)

// holderProgram is testdata/holder.c, compiled once with the simulated driver's
// own code for cards.
var holderProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "holder")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "holder")
	sources, err := filepath.Glob("../../cdi/simdriver/card/*.c")
	if err != nil {
		return "", err
	}
	args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-pthread", "-I../../cdi/simdriver", "-o", program, "testdata/holder.c"}, sources...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := holderProgram(); err == nil {
		_ = os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// holder is a process that has a slot of a card.
type holder struct {
	cmd     *exec.Cmd
	in      io.Writer
	answers *bufio.Scanner
}

func hold(t *testing.T, path string) *holder {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	program, err := holderProgram()
	require.NoError(t, err)
	h := &holder{cmd: exec.CommandContext(t.Context(), program, path)}
	h.in, err = h.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := h.cmd.StdoutPipe()
	require.NoError(t, err)
	h.answers = bufio.NewScanner(out)
	require.NoError(t, h.cmd.Start())
	t.Cleanup(h.kill)
	require.True(t, h.answers.Scan(), "the process got no slot")
	return h
}

func (h *holder) tell(t *testing.T, command string) string {
	t.Helper()
	_, err := fmt.Fprintln(h.in, command)
	require.NoError(t, err)
	require.True(t, h.answers.Scan(), "the process has ended")
	return h.answers.Text()
}

func (h *holder) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

func truth(t *testing.T, c *simcard.Card) simcard.Truth {
	t.Helper()
	result, err := c.Truth()
	require.NoError(t, err)
	return result
}

func TestTruthTellsWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	path := create(t, simcard.Config{UUID: someUUID, Memory: 100 * simcard.Frame})
	c := open(t, path)
	first, second := hold(t, path), hold(t, path)
	require.Equal(t, "ok", first.tell(t, "+ 60"))
	require.Equal(t, "ok", second.tell(t, "+ 30"))
	require.Equal(t, "no", second.tell(t, "+ 11"))
	require.Equal(t, "ok", first.tell(t, "+ 5"))
	require.Equal(t, "ok", first.tell(t, "-"))

	now := truth(t, c)
	require.EqualValues(t, 90*simcard.Frame, now.Used)
	require.EqualValues(t, 95*simcard.Frame, now.UsedMax)
	require.EqualValues(t, 1, now.Refused)
	require.Equal(t, now.Used, now.Live())
	require.Len(t, now.Slots, 2)
	one, found := now.ByPID(first.cmd.Process.Pid)
	require.True(t, found)
	require.EqualValues(t, 60*simcard.Frame, one.Held[simcard.KindLinear])
	require.EqualValues(t, 65*simcard.Frame, one.HeldMax)
	require.Equal(t, first.cmd.Process.Pid, one.NSPID)
	require.Equal(t, "holder", one.Name)
	require.Positive(t, one.Started)
	_, found = now.ByPID(1)
	require.False(t, found)
	require.NoError(t, c.Audit())
}

func TestADeadProcessIsSeenAsDead(t *testing.T) {
	t.Parallel()
	path := create(t, simcard.Config{UUID: someUUID, Memory: 100 * simcard.Frame})
	c := open(t, path)
	dead, next := hold(t, path), hold(t, path)
	require.Equal(t, "ok", dead.tell(t, "+ 60"))
	dead.kill()

	now := truth(t, c)
	require.Len(t, now.Slots, 2)
	require.False(t, now.Slots[0].Alive)
	require.Zero(t, now.Slots[0].PID)
	require.EqualValues(t, 60*simcard.Frame, now.Slots[0].Total(), "nobody has cleared it yet")
	require.Zero(t, now.Live())
	_, found := now.ByPID(dead.cmd.Process.Pid)
	require.False(t, found)

	require.Equal(t, "ok", next.tell(t, "+ 100"), "who needs room clears it")
	now = truth(t, c)
	require.Len(t, now.Slots, 1)
	require.EqualValues(t, 100*simcard.Frame, now.Used)
	require.NoError(t, c.Audit())
}

func TestManyProcessesKeepTheirSlots(t *testing.T) {
	t.Parallel()
	path := create(t, some())
	c := open(t, path)
	pids := map[int]bool{}
	for range 12 {
		pids[hold(t, path).cmd.Process.Pid] = true
	}
	now := truth(t, c)
	require.Len(t, now.Slots, 12)
	for i, s := range now.Slots {
		require.Equal(t, i, s.Number)
		require.True(t, s.Alive)
		require.True(t, pids[s.PID])
		delete(pids, s.PID)
	}
}

func TestWatchFindsWhoHoldsTooMuch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit    uint64
		violated bool
	}{
		"both together fit":                        {25, false},
		"each fits alone but both together do not": {24, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := create(t, simcard.Config{UUID: someUUID, Memory: 100 * simcard.Frame})
			c := open(t, path)
			first, second, stranger := hold(t, path), hold(t, path), hold(t, path)
			require.Equal(t, "ok", first.tell(t, "+ 10"))
			require.Equal(t, "ok", second.tell(t, "+ 15"))
			require.Equal(t, "ok", stranger.tell(t, "+ 50"))

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			samples := 0
			report, err := c.Watch(ctx, time.Microsecond, func(s simcard.Slot) (string, uint64) {
				if samples++; samples == 100 {
					cancel()
				}
				if s.PID == stranger.cmd.Process.Pid {
					return "", 0
				}
				return "tenant", tc.limit * simcard.Frame
			})
			require.NoError(t, err)
			require.GreaterOrEqual(t, report.Samples, 30)
			require.Equal(t, map[string]uint64{"tenant": 25 * simcard.Frame}, report.Peak)
			if !tc.violated {
				require.Empty(t, report.Violations)
				return
			}
			require.NotEmpty(t, report.Violations)
			v := report.Violations[0]
			require.EqualValues(t, 25*simcard.Frame, v.Held)
			require.Len(t, v.Slots, 2)
			require.Contains(t, v.String(), fmt.Sprintf("tenant holds %d bytes, its limit is %d: slot 0 (PID %d, holder) %d",
				25*simcard.Frame, 24*simcard.Frame, first.cmd.Process.Pid, 10*simcard.Frame))
		})
	}
}

// Two processes claim and give back all the time; the card has room for one of
// them at once. A sample that mixed two moments would see both. The processes
// between their slots only make it take longer to read from one to the other.
func TestWatchSeesOneMomentAtATime(t *testing.T) {
	t.Parallel()
	path := create(t, simcard.Config{UUID: someUUID, Memory: 10 * simcard.Frame})
	c := open(t, path)
	first := hold(t, path)
	for range 30 {
		hold(t, path)
	}
	for _, h := range []*holder{first, hold(t, path)} {
		_, err := fmt.Fprintln(h.in, "~ 6")
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	busy := 0
	report, err := c.Watch(ctx, time.Microsecond, func(s simcard.Slot) (string, uint64) {
		if s.Total() > 0 {
			busy++
		}
		if busy == 1000 {
			cancel()
		}
		return "both", 10 * simcard.Frame
	})
	require.NoError(t, err)
	require.Empty(t, report.Violations)
	require.GreaterOrEqual(t, report.Peak["both"], uint64(6*simcard.Frame))
}
