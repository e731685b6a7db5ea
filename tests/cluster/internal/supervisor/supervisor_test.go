// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script is a component that runs in sh and is ready once it has made the file "ready".
func script(t *testing.T, name, text string) Component {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	return Component{
		Name: name, Path: "/bin/sh", Args: []string{"-c", text},
		Env: []string{"READY=" + ready}, Log: filepath.Join(dir, "log"),
		Ready: func(context.Context) error {
			_, err := os.Stat(ready)
			return err
		},
	}
}

// started starts the only component and stops it when the test ends.
func started(t *testing.T, c Component) *Supervisor {
	t.Helper()
	s := New(c)
	t.Cleanup(func() { _ = s.Stop(context.Background(), c.Name) }) //nolint:usetesting // the test's context has ended by then
	require.NoError(t, s.Start(within(t), c.Name))
	return s
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

const wellBehaved = "touch $READY; exec sleep 1000"

func TestStartWaitsForReadiness(t *testing.T) {
	t.Parallel()
	s := started(t, script(t, "a", wellBehaved))
	state := s.Status()[0]
	require.True(t, state.Running)
	require.NoError(t, syscall.Kill(state.PID, 0))

	require.NoError(t, s.Start(within(t), "a"), "starting what runs changes nothing")
	require.Equal(t, state, s.Status()[0])
}

func TestStopIsNoDeathAndStartBringsItBack(t *testing.T) {
	t.Parallel()
	s := started(t, script(t, "a", wellBehaved))
	before := s.Status()[0].PID
	require.NoError(t, s.Stop(within(t), "a"))
	require.Equal(t, State{Name: "a", Starts: 1}, s.Status()[0])
	require.ErrorIs(t, syscall.Kill(before, 0), syscall.ESRCH)
	require.NoError(t, s.Start(within(t), "a"))
	require.Equal(t, 2, s.Status()[0].Starts)
	require.Empty(t, s.Deaths())
}

func TestRestartAndKillMakeANewProcess(t *testing.T) {
	t.Parallel()
	for verb, act := range map[string]func(*Supervisor, context.Context, string) error{
		"restart": (*Supervisor).Restart,
		"kill":    (*Supervisor).Kill,
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := started(t, script(t, "a", wellBehaved))
			before := s.Status()[0].PID
			require.NoError(t, act(s, within(t), "a"))
			after := s.Status()[0]
			require.True(t, after.Running)
			require.NotEqual(t, before, after.PID)
			require.Equal(t, 2, after.Starts)
			require.Empty(t, s.Deaths())
		})
	}
}

func TestStopKillsWhatIgnoresTheRequest(t *testing.T) {
	t.Parallel()
	c := script(t, "a", "trap '' TERM; touch $READY; while :; do sleep 1; done")
	c.Grace = 50 * time.Millisecond
	s := started(t, c)
	require.NoError(t, s.Stop(within(t), "a"))
	require.False(t, s.Status()[0].Running)
}

func TestDeathIsReportedWithTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	s := started(t, script(t, "a", "for i in $(seq 30); do echo line $i; done; "+wellBehaved))
	require.NoError(t, syscall.Kill(s.Status()[0].PID, syscall.SIGKILL))
	select {
	case death := <-s.Deaths():
		require.ErrorContains(t, death, "a ended unasked: signal: killed")
		require.ErrorContains(t, death, "line 30")
		require.NotContains(t, death.Error(), "line 3\n")
	case <-time.After(30 * time.Second):
		require.Fail(t, "no death was reported")
	}
}

func TestStartFailsAtOnceWhenTheProcessEnds(t *testing.T) {
	t.Parallel()
	s := New(script(t, "a", "echo bad flag; exit 1"))
	err := s.Start(within(t), "a")
	require.ErrorContains(t, err, "exit status 1")
	require.ErrorContains(t, err, "bad flag")
}

func TestStartGivesUpWithTheContextAndSaysWhy(t *testing.T) {
	t.Parallel()
	c := script(t, "a", "exec sleep 1000")
	c.Ready = func(context.Context) error { return errors.New("connection refused") }
	s := New(c)
	t.Cleanup(func() { _ = s.Stop(context.Background(), "a") }) //nolint:usetesting // the test's context has ended by then
	why := errors.New("the node took too long")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
	defer cancel()
	err := s.Start(ctx, "a")
	require.ErrorIs(t, err, why)
	require.ErrorContains(t, err, "connection refused")
}

func TestUnknownComponent(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, New().Stop(t.Context(), "b"), ErrUnknown)
}

func TestTail(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&many, "line %d\n", i)
	}
	for name, row := range map[string]struct{ content, want string }{
		"a large file":       {many.String(), "  line 19998\n  line 19999"},
		"fewer lines":        {"one\n", "  one"},
		"without an end":     {"one\ntwo\nthree", "  two\n  three"},
		"nothing was logged": {"", "  "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "log")
			require.NoError(t, os.WriteFile(file, []byte(row.content), 0o644))
			require.Equal(t, row.want, Tail(file, 2))
		})
	}
	require.Contains(t, Tail(filepath.Join(t.TempDir(), "absent"), 2), "no such file")
}
