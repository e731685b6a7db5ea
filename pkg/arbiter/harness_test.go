// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/fixture"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

const (
	patient = 30 * time.Second // a bound for tests that would hang, never a measure
	mib     = 1 << 20
	// contextBytes is what a context takes on cards that do not say.
	contextBytes = 512 * mib
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == helperArgument {
		helperMain()
		return
	}
	os.Exit(m.Run())
}

// usage is what the processes of cards hold, as a test says.
type usage struct {
	mu    sync.Mutex
	held  map[card.UUID]map[int]uint64
	kept  uint64 // of the first card
	err   error
	reads int
	// computed by processes of the first card, as parts of the time, and how often
	// somebody asked.
	computed map[int]float64
	asked    int
	// before is called before every reading, without the lock.
	before func()
}

func (u *usage) Processes(_ context.Context, id card.UUID) ([]card.ProcessMemory, error) {
	u.mu.Lock()
	before := u.before
	u.mu.Unlock()
	if before != nil {
		before()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reads++
	var processes []card.ProcessMemory
	for pid, bytes := range u.held[id] {
		processes = append(processes, card.ProcessMemory{PID: pid, Bytes: bytes})
	}
	return processes, u.err
}

// Kept implements arbiter.Keeper.
func (u *usage) Kept(_ context.Context, id card.UUID) (bytes uint64, exact bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if id != fixture.Card(0).UUID {
		return 0, true, u.err
	}
	return u.kept, true, u.err
}

// keep says what the first card holds for no process.
func (u *usage) keep(bytes uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept = bytes
}

func (u *usage) Computed(_ context.Context, id card.UUID) ([]card.ProcessCompute, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	var processes []card.ProcessCompute
	for pid, part := range u.computed {
		if id == fixture.Card(0).UUID {
			processes = append(processes, card.ProcessCompute{PID: pid, Part: part})
		}
	}
	return processes, u.err
}

func (u *usage) computeReads() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked
}

// compute says what part of the time a process has work on the first card.
func (u *usage) compute(pid int, part float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.computed = map[int]float64{pid: part}
}

// set says what a process holds of the first card.
func (u *usage) set(pid int, bytes uint64) { u.setOn(fixture.Card(0).UUID, pid, bytes) }

func (u *usage) setOn(id card.UUID, pid int, bytes uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held == nil {
		u.held = map[card.UUID]map[int]uint64{}
	}
	if u.held[id] == nil {
		u.held[id] = map[int]uint64{}
	}
	if u.held[id][pid] = bytes; bytes == 0 {
		delete(u.held[id], pid)
	}
}

func (u *usage) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
}

func (u *usage) intervene(before func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before = before
}

// told collects events.
type told struct {
	mu     sync.Mutex
	events []string
}

func (e *told) Claim(claim share.Claim, reason, message string) {
	e.add(claim.String() + " " + reason + ": " + message)
}
func (e *told) Node(reason, message string) { e.add("node " + reason + ": " + message) }

func (e *told) add(event string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

func (e *told) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.events...)
}

// node is a machine with an arbiter, or without one.
type node struct {
	shares, run string
	usage       *usage
	events      *told
	dirs        cdi.Dirs
	configure   func(*arbiter.Config)
	denied      bool
}

func newNode(t testing.TB) *node {
	t.Helper()
	root := t.TempDir()
	n := &node{shares: filepath.Join(root, "shares"), run: filepath.Join(root, "run"), usage: &usage{}, events: &told{}}
	n.dirs = cdi.NewDirs(n.shares, durable.Files{})
	require.NoError(t, os.MkdirAll(n.shares, 0o750))
	return n
}

// watch lets the watchdog look often, without any grace.
func (n *node) watch(action arbiter.Action) {
	n.configure = func(c *arbiter.Config) {
		c.Watchdog = arbiter.Watchdog{Interval: time.Millisecond, Action: action, Tolerance: 64 * mib}
	}
}

// deny takes the right to look into processes away.
func (n *node) deny() { n.denied = true }

// running is an arbiter that runs.
type running struct {
	*arbiter.Arbiter
	stop func()
}

func (n *node) start(t testing.TB) *running {
	t.Helper()
	config := arbiter.Config{SharesDir: n.shares, RunDir: n.run, ContextEstimate: contextBytes, Rescan: time.Hour, Watchdog: arbiter.Watchdog{
		Interval: time.Hour, Action: arbiter.ActionEvent, Tolerance: 64 * mib,
	}}
	if n.configure != nil {
		n.configure(&config)
	}
	if n.denied {
		arbiter.DenyRecovery(&config)
	}
	a := arbiter.New(config, arbiter.Dependencies{Cards: n.usage, SimulatedCards: n.usage, Events: n.events, Recorder: nop{}})
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(2)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(t.Context()), logger))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return a.Ready() == nil }, patient, time.Millisecond)
	return &running{a, stop}
}

type nop struct{}

func (nop) Reaped(time.Duration) {}
func (nop) Found(string)         {}
func (nop) Killed()              {}

// some is a share of the first card; changes may make it another.
func some(claim string, memory card.MiB, changes ...func(*share.Share)) share.Share {
	c := fixture.Card(0)
	s := share.Share{
		ID: share.ID{
			Claim:   share.Claim{UID: "00000000-0000-0000-0000-" + fmt.Sprintf("%012x", []byte(claim)), Namespace: "team-a", Name: claim},
			Request: "gpu", Pool: fixture.Pool, Device: c.DeviceName(), ShareID: "s",
		},
		Card: c.UUID, Limits: share.Limits{Cores: 30, Memory: memory}, Policy: share.Fixed, Class: share.NoClass, BurstCeiling: 100,
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// prepare writes the share's directory and tells where it is.
func (n *node) prepare(t testing.TB, s share.Share) string {
	t.Helper()
	c := fixture.Card(0)
	c.UUID = s.Card
	data, err := cdi.ShareFile(s, c)
	require.NoError(t, err)
	_, err = n.dirs.Write(s.Key(), data)
	require.NoError(t, err)
	return n.dirs.Path(s.Key())
}

// served is prepare, and waits for the arbiter.
func (n *node) served(t testing.TB, s share.Share) string {
	t.Helper()
	dir := n.prepare(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	require.NoError(t, wireclient.Wait(ctx, dir))
	return dir
}

func attach(t testing.TB, dir string) *wireclient.Client {
	t.Helper()
	return connect(t, dir, wireclient.Hello(wire.RoleProcess))
}

// connect tries as often as the runtime does: while one arbiter follows another
// a connection may end before it is answered.
func connect(t testing.TB, dir string, hello wire.Hello) *wireclient.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	for {
		c, err := wireclient.Connect(ctx, dir, hello)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorAs(t, err, new(*wireclient.RefusedError), err)
	}
}

// refused is why a client gets nothing.
func refused(t *testing.T, dir string, hello wire.Hello, files ...*os.File) *wireclient.RefusedError {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	_, err := wireclient.Connect(ctx, dir, hello, files...)
	var refusal *wireclient.RefusedError
	require.ErrorAs(t, err, &refusal)
	return refusal
}

func refusedProcess(t *testing.T, dir string) *wireclient.RefusedError {
	t.Helper()
	return refused(t, dir, wireclient.Hello(wire.RoleProcess))
}

func eventually(t *testing.T, condition func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, patient, time.Millisecond, append([]any{what}, args...)...)
}

// helper is another process that uses a share.
type helper struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

const helperArgument = "act-as-helper"

func startHelper(t testing.TB) *helper {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return startCommand(t, exec.CommandContext(t.Context(), program, helperArgument))
}

// startCommand starts what becomes a helper.
func startCommand(t testing.TB, command *exec.Cmd) *helper {
	t.Helper()
	h := &helper{Cmd: command}
	h.Stderr = os.Stderr
	var err error
	h.in, err = h.StdinPipe()
	require.NoError(t, err)
	out, err := h.StdoutPipe()
	require.NoError(t, err)
	h.out = bufio.NewScanner(out)
	require.NoError(t, h.Start())
	t.Cleanup(func() { h.end() })
	return h
}

// end kills the process and waits for it.
func (h *helper) end() {
	_ = h.Process.Kill()
	_ = h.Wait()
}

// ask gives the helper a command and returns its answer.
func (h *helper) ask(t testing.TB, words ...any) string {
	t.Helper()
	h.tell(t, words...)
	require.True(t, h.out.Scan(), "no answer to %v", words)
	return h.out.Text()
}

func (h *helper) tell(t testing.TB, words ...any) {
	t.Helper()
	_, err := fmt.Fprintln(h.in, words...)
	require.NoError(t, err)
}

func (h *helper) pid() int { return h.Process.Pid }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func contains(events []string, text string) bool {
	for _, e := range events {
		if strings.Contains(e, text) {
			return true
		}
	}
	return false
}
