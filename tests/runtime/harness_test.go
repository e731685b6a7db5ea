// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// need skips where this machine cannot have boxes. make test-runtime has checked
// that it can: there nothing is skipped.
func need(t *testing.T) {
	t.Helper()
	if err := sandbox.Usable(); err != nil {
		t.Skipf("%v: run it as root", err)
	}
}

// onlyRelease skips what a sanitizer's runtime library forbids: programs that are not
// built with it.
func onlyRelease(t *testing.T, why string) {
	t.Helper()
	if rig.Flavour() != "release" {
		t.Skipf("flavour %s: %s", rig.Flavour(), why)
	}
}

// scaled is n with the release build, and less where a sanitizer makes
// everything slow.
func scaled(n int) int {
	if rig.Flavour() != "release" {
		return max(n/5, 1)
	}
	return n
}

// number from the environment, to do more than the tests of every day do.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoErrorf(t, err, "environment variable %s", variable)
	return n
}

// newRig makes a rig whose arbiter runs, and which is watched to the end of the
// test: no share may ever be above its limit.
func newRig(t *testing.T) *rig.Rig {
	t.Helper()
	need(t)
	r, err := rig.New()
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the arbiter said:\n%s", r.Log())
		}
		require.NoError(t, r.Close())
	})
	_, err = r.StartArbiter()
	require.NoError(t, err)
	return r
}

// newCard makes a card that is watched.
func newCard(t *testing.T, r *rig.Rig, config simcard.Config) *simcard.Card {
	t.Helper()
	c, err := r.Card(config)
	require.NoError(t, err)
	watcher := r.Watch(c)
	t.Cleanup(func() {
		report, err := watcher.Stop()
		require.NoError(t, err)
		t.Logf("card %s was looked at %d times", c.Config().UUID, report.Samples)
	})
	return c
}

func newShare(t *testing.T, r *rig.Rig, on *simcard.Card, mib uint64) rig.Share {
	t.Helper()
	s, err := r.Share(on, mib)
	require.NoError(t, err)
	require.NoError(t, r.Served(s))
	return s
}

func newBox(t *testing.T, r *rig.Rig, shares ...rig.Share) *sandbox.Box {
	t.Helper()
	box, err := r.Box(rig.BoxOptions{}, shares...)
	require.NoError(t, err)
	return box
}

// place is a share on a card of its own and a box that has it.
type place struct {
	rig   *rig.Rig
	card  *simcard.Card
	share rig.Share
	box   *sandbox.Box
}

func newPlace(t *testing.T, mib uint64) place {
	t.Helper()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	s := newShare(t, r, c, mib)
	return place{r, c, s, newBox(t, r, s)}
}

// neverAbove checks the card's own high-water mark, which misses no instant. Only
// for cards with a single share.
func (p place) neverAbove(t *testing.T) {
	t.Helper()
	truth, err := p.card.Truth()
	require.NoError(t, err)
	require.LessOrEqual(t, truth.UsedMax, p.share.Limit, "the most that the card ever held")
}

// settled waits for ledger and truth to agree, and returns the amount.
func (p place) settled(t *testing.T) uint64 {
	t.Helper()
	held, err := p.rig.Settled(p.share)
	require.NoError(t, err)
	return held
}

// gone waits until the share holds nothing, by the ledger and in truth.
func (p place) gone(t *testing.T) {
	t.Helper()
	require.NoError(t, rig.Until("all of the share's memory to be back", func() (bool, error) {
		held, err := p.rig.Settled(p.share)
		if err == nil && held != 0 {
			err = fmt.Errorf("%d bytes are held", held)
		}
		return err == nil, err
	}))
}

// run runs a client to its end.
func run(t *testing.T, box *sandbox.Box, name string, args ...string) []rig.Line {
	t.Helper()
	lines, err := rig.Run(t.Context(), box, rig.Client(name), args...)
	require.NoError(t, err)
	return lines
}

// start starts a client that is talked with, and is killed with the test.
func start(t *testing.T, box *sandbox.Box, env []string, name string, args ...string) *rig.Program {
	t.Helper()
	cmd := exec.Command(rig.Client(name), args...)
	cmd.Env = rig.Environment(env...)
	p, err := rig.Start(box, cmd)
	require.NoError(t, err)
	t.Cleanup(func() { p.Signal(syscall.SIGKILL) }) //nolint:errcheck // it may have ended
	return p
}

// ask tells a tenant to do something and wants this CUresult.
func ask(t *testing.T, p *rig.Program, line string, want int) rig.Line {
	t.Helper()
	answer, err := p.Ask(line)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(want), answer.Values["result"], "%s: %s: %s", line, answer.Text, p.Complaints())
	return answer
}

// complains waits for a program's one line that says why there is no driver.
func complains(t *testing.T, p *rig.Program) string {
	t.Helper()
	require.NoError(t, rig.Until("the program's line on stderr", func() (bool, error) {
		return strings.HasSuffix(p.Complaints(), "\n"), nil
	}))
	said := p.Complaints()
	require.Equal(t, 1, strings.Count(said, "\n"), said)
	require.True(t, strings.HasPrefix(said, "tranche: "), said)
	return said
}

// amount of a line.
func amount(t *testing.T, line rig.Line, key string) uint64 {
	t.Helper()
	n, ok := line.Number(key)
	require.Truef(t, ok, "%q has no number %s", line.Text, key)
	return n
}

// tenant starts a tenant that has a context on a device.
func tenant(t *testing.T, box *sandbox.Box, device int) *rig.Program {
	t.Helper()
	p := start(t, box, nil, "tenant")
	ask(t, p, "init", success)
	ask(t, p, fmt.Sprint("context ", device), success)
	return p
}

// CUresults that tests want.
const (
	success        = 0
	outOfMemory    = 2
	notPermitted   = 800
	systemNotReady = 802
)

// within fails the test when do takes longer: a hang is a fault of its own.
func within(t *testing.T, limit time.Duration, what string, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		require.NoError(t, err, what)
	case <-timer.C:
		t.Fatalf("%s hangs: it has not ended within %s", what, limit)
	}
}

// program puts a file into the box as a program of a container's own files.
func program(t *testing.T, box *sandbox.Box, from, to string, mode os.FileMode) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, box.Do(func() error {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o755); err != nil {
			return err
		}
		return os.Chmod(to, mode)
	}))
}
