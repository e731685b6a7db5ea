// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2/ktesting"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

const (
	mib     = uint64(1 << 20)
	patient = 60 * time.Second // a bound for tests that would hang, never a measure
)

// built is a directory with the libraries that a container has, library and
// driver, and with programs; made once, with the sanitizer that FLAVOUR names.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "nvml")
	if err != nil {
		return "", err
	}
	real, front := filepath.Join(dir, "libnvidia-ml-real.so.1"), filepath.Join(dir, "libnvidia-ml.so.1")
	err = rig.Made(dir, "sim/libnvidia-ml-real.so.1", "runtime/libnvidia-ml.so.1")
	for _, sub := range []string{"library", "driver", "programs"} {
		err = cmp.Or(err, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	err = cmp.Or(err, os.Rename(front, filepath.Join(dir, "library", "libnvidia-ml.so.1")))
	driver := filepath.Join(dir, "driver", "libnvidia-ml-real.so.1")
	err = cmp.Or(err, os.Rename(real, driver), os.Chmod(dir, 0o755))
	cards, _ := filepath.Glob("../../cdi/simdriver/card/*.c")
	err = cmp.Or(err, compile(filepath.Join(dir, "programs", "ask"), "../sim/testdata/ask.c", driver))
	err = cmp.Or(err, compile(filepath.Join(dir, "programs", "holder"), append(cards, "../sim/testdata/holder.c", "-ldl")...))
	return dir, err
})

func compile(program string, args ...string) error {
	args = append(args, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-I../../cdi/abi", "-I../../cdi/simdriver", "-o", program)
	switch rig.Flavour() {
	case "asan":
		args = append(args, "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
	case "tsan":
		args = append(args, "-fsanitize=thread")
	}
	return run("cc", args...)
}

func run(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := built(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// node is a machine with simulated cards and shares, and an arbiter if a test
// starts one.
type node struct {
	dirs     cdi.Dirs
	shares   string
	cards    string
	run      string
	programs string
}

func newNode(t *testing.T) *node {
	t.Helper()
	if err := sandbox.Usable(); err != nil {
		t.Skip(err)
	}
	for _, tool := range []string{"cc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	programs, err := built()
	require.NoError(t, err)
	root := t.TempDir()
	n := &node{shares: filepath.Join(root, "shares"), cards: filepath.Join(root, "cards"), run: filepath.Join(root, "run"), programs: programs}
	require.NoError(t, os.MkdirAll(n.shares, 0o755))
	n.dirs = cdi.NewDirs(n.shares, durable.Files{})
	return n
}

// nobody is measured, nothing is told: the arbiter's environment.
type nobody struct{}

func (nobody) Processes(context.Context, card.UUID) ([]card.ProcessMemory, error) { return nil, nil }
func (nobody) Claim(share.Claim, string, string)                                  {}
func (nobody) Node(string, string)                                                {}
func (nobody) Reaped(time.Duration)                                               {}
func (nobody) Found(string)                                                       {}
func (nobody) Killed()                                                            {}

// serve starts an arbiter, and stops it at the latest with the test.
func (n *node) serve(t *testing.T) (stop func()) {
	t.Helper()
	config := arbiter.Config{
		SharesDir: n.shares, RunDir: n.run, ContextEstimate: 64 * mib, Rescan: time.Hour,
		Watchdog: arbiter.Watchdog{Interval: time.Hour, Action: arbiter.ActionEvent, Tolerance: 64 * mib},
	}
	a := arbiter.New(config, arbiter.Dependencies{Cards: nobody{}, SimulatedCards: nobody{}, Events: nobody{}, Recorder: nobody{}})
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return a.Ready() == nil }, patient, time.Millisecond)
	return stop
}

// card makes the card with that number.
func (n *node) card(t *testing.T, number int) card.UUID {
	t.Helper()
	id := card.UUID(fmt.Sprintf("GPU-8f3c2a10-5b7e-4c21-9d0a-%012x", number))
	_, err := simcard.Create(n.cards, simcard.Config{UUID: id, Memory: 1000 * mib, DriverMemory: 100 * mib, Index: number})
	require.NoError(t, err)
	return id
}

// share makes a share with that much memory in MiB, 0 for the whole card.
func (n *node) share(t *testing.T, claim string, on card.UUID, memory card.MiB) share.Key {
	t.Helper()
	s := share.Share{
		ID: share.ID{
			Claim:   share.Claim{UID: claim, Namespace: "team-a", Name: claim},
			Request: "gpu", Pool: "node", Device: strings.ToLower(string(on)), ShareID: "s",
		},
		Card: on, Limits: share.Limits{Cores: 30, Memory: memory}, Policy: share.Fixed, Class: share.NoClass, BurstCeiling: card.WholeCompute,
	}
	if memory == 0 {
		s.Whole, s.Limits = true, share.Limits{Cores: card.WholeCompute, Memory: 900}
	}
	data, err := cdi.ShareFile(s, card.Card{UUID: on, Vendor: card.VendorNVIDIA, Memory: 900, Simulated: true})
	require.NoError(t, err)
	_, err = n.dirs.Write(s.Key(), data)
	require.NoError(t, err)
	return s.Key()
}

// box is a container with all cards, and some shares.
func (n *node) box(t *testing.T, hostPIDs bool, keys ...share.Key) *sandbox.Box {
	t.Helper()
	config := sandbox.Config{
		Shares: map[string]string{}, Cards: map[string]string{}, HostPIDs: hostPIDs,
		Driver: filepath.Join(n.programs, "driver"), Library: filepath.Join(n.programs, "library"), Programs: filepath.Join(n.programs, "programs"),
	}
	for _, key := range keys {
		config.Shares[string(key)] = n.dirs.Path(key)
	}
	paths, err := simcard.List(n.cards)
	require.NoError(t, err)
	for _, path := range paths {
		config.Cards[filepath.Base(path)] = path
	}
	box, err := sandbox.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, box.Close()) })
	return box
}

// ask runs the program ask in a box. It returns the lines that it prints, and
// what it writes to stderr.
func ask(t *testing.T, box *sandbox.Box, args ...string) (lines []string, complaints string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(sandbox.ProgramDir, "ask"), args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, box.Run(cmd), "%s%s", &out, &errs)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), errs.String()
}

// talker is a program in a box that answers each line with one.
type talker struct {
	pid     int
	in      io.Writer
	answers *bufio.Scanner
}

func talk(t *testing.T, box *sandbox.Box, program string, args ...string) *talker {
	t.Helper()
	inRead, inWrite, err := os.Pipe()
	require.NoError(t, err)
	outRead, outWrite, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(filepath.Join(sandbox.ProgramDir, program), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inRead, outWrite, os.Stderr
	started, err := box.Start(cmd)
	require.NoError(t, err)
	require.NoError(t, inRead.Close())
	require.NoError(t, outWrite.Close())
	t.Cleanup(func() {
		require.NoError(t, inWrite.Close())
		require.NoError(t, started.Wait())
		require.NoError(t, outRead.Close())
	})
	return &talker{pid: started.PID, in: inWrite, answers: bufio.NewScanner(outRead)}
}

func (h *talker) ask(t *testing.T, line string) string {
	t.Helper()
	_, err := fmt.Fprintln(h.in, line)
	require.NoError(t, err)
	require.True(t, h.answers.Scan(), "the process has ended")
	return h.answers.Text()
}

// holder is a process in a box that uses a card.
type holder struct {
	*talker

	nsPID int
}

func hold(t *testing.T, box *sandbox.Box, on card.UUID) *holder {
	t.Helper()
	h := &holder{talker: talk(t, box, "holder", filepath.Join(sandbox.CardsDir, string(on)))}
	require.True(t, h.answers.Scan(), "the process got no slot")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == "NSpid:" {
			h.nsPID, err = strconv.Atoi(fields[len(fields)-1])
			require.NoError(t, err)
		}
	}
	return h
}

func (h *holder) tell(t *testing.T, commands ...string) *holder {
	t.Helper()
	for _, command := range commands {
		require.Equal(t, "ok", h.ask(t, command))
	}
	return h
}

// charge makes a slot in the ledger of a share that says what a process holds.
func (n *node) charge(t *testing.T, key share.Key, pid, nsPID int, committed, implicit uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	require.NoError(t, wireclient.Wait(ctx, n.dirs.Path(key)))
	client, err := wireclient.Attach(ctx, n.dirs.Path(key))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	slot := client.Slot()
	slot.HostPID.Store(int32(pid))
	slot.NSPID.Store(int32(nsPID))
	slot.Committed.Store(committed * mib)
	slot.Implicit.Store(implicit * mib)
}
