// SPDX-License-Identifier: Apache-2.0

//go:build native

package sim_test

import (
	"bufio"
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

const (
	firstUUID  = card.UUID("GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000")
	secondUUID = card.UUID("GPU-8f3c2a10-5b7e-4c21-9d0a-000000000001")
	mib        = uint64(1 << 20)
)

// built is the directory with the simulated NVML, under the name that programs
// load, tranche-simcard and the programs of testdata; made once, with the
// sanitizer that FLAVOUR names. The simulated libcuda lies there as libcuda-real.so.1.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return "", err
	}
	library := filepath.Join(dir, "libnvidia-ml.so.1")
	err = rig.Made(dir, "sim/libnvidia-ml-real.so.1", "sim/libcuda-real.so.1", "bin/tranche-simcard")
	err = cmp.Or(err, os.Rename(filepath.Join(dir, "libnvidia-ml-real.so.1"), library))
	cards, _ := filepath.Glob("../../cdi/simdriver/card/*.c")
	err = cmp.Or(err, compile(filepath.Join(dir, "ask"), "testdata/ask.c", library))
	err = cmp.Or(err, compile(filepath.Join(dir, "holder"), append(cards, "testdata/holder.c", "-ldl")...))
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

// machine is a directory of cards, and programs that look at them.
type machine struct{ programs, cards string }

func newMachine(t *testing.T, configs ...simcard.Config) machine {
	t.Helper()
	for _, tool := range []string{"cc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	programs, err := built()
	require.NoError(t, err)
	m := machine{programs, t.TempDir()}
	for _, config := range configs {
		_, err := simcard.Create(m.cards, config)
		require.NoError(t, err)
	}
	return m
}

func (m machine) command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(m.programs, program), args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+m.programs, simcard.DirEnv+"="+m.cards)
	return cmd
}

// ask runs the program ask and gives its lines.
func (m machine) ask(t *testing.T, args ...string) []string {
	t.Helper()
	return output(t, m.command(t, "ask", args...))
}

func output(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, complaints.String())
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// holder is a process that uses a card.
type holder struct {
	cmd     *exec.Cmd
	in      io.Writer
	answers *bufio.Scanner
}

func (m machine) hold(t *testing.T, id card.UUID) *holder {
	t.Helper()
	h := &holder{cmd: m.command(t, "holder", filepath.Join(m.cards, string(id)))}
	h.cmd.Stderr = os.Stderr
	var err error
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

func (h *holder) tell(t *testing.T, commands ...string) *holder {
	t.Helper()
	for _, command := range commands {
		_, err := fmt.Fprintln(h.in, command)
		require.NoError(t, err)
		require.True(t, h.answers.Scan(), "the process has ended")
	}
	return h
}

func (h *holder) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

func (h *holder) pid() int { return h.cmd.Process.Pid }

func TestNVMLExportsWhatTheDriversDo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file, err := elf.Open(filepath.Join(m.programs, "libnvidia-ml.so.1"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	exported := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported[s.Name] = true
		}
		require.NotEqual(t, "dlsym", s.Name, "other runtimes replace it")
	}
	for _, version := range []string{"470", "535", "550"} {
		list, err := os.ReadFile("../testdata/cuda/symbols-nvml-" + version + ".txt")
		require.NoError(t, err)
		for name := range strings.FieldsSeq(string(list)) {
			require.True(t, exported[name], "%s of driver %s", name, version)
		}
	}
	for name := range exported {
		require.True(t, strings.HasPrefix(name, "nvml"), name)
	}
}

func TestNVMLWithoutCards(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"init 9 Driver Not Loaded"}, newMachine(t).ask(t, "cards"))
}

func TestNVMLTellsWhatCardsAre(t *testing.T) {
	t.Parallel()
	m := newMachine(t,
		simcard.Config{UUID: secondUUID, Memory: 8 << 30, Index: 1, Minor: 4, Name: "NVIDIA A100-SXM4-40GB", ComputeMajor: 8, PCIBusID: "00000000:1b:00.0"},
		simcard.Config{UUID: firstUUID, Memory: 8 << 30, Name: "NVIDIA H100", ComputeMajor: 9, PCIBusID: "00000000:0a:00.0"},
	)
	require.Equal(t, []string{
		"driver 550.54.14",
		"nvml 12.550.54.14",
		"cuda 12040",
		"0 uuid " + string(firstUUID) + " 1 name NVIDIA H100 index 0 minor 0 pci 00000000:0A:00.0 0000:0A:00.0 1 compute 9.0 architecture 9 mig 0 0",
		"1 uuid " + string(secondUUID) + " 1 name NVIDIA A100-SXM4-40GB index 1 minor 4 pci 00000000:1B:00.0 0000:1B:00.0 1 compute 8.0 architecture 7 mig 0 0",
	}, m.ask(t, "cards"))
}

func TestTheNodeDriverListsSimulatedCardsThroughNVML(t *testing.T) {
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 24 << 30, DriverMemory: 512 << 20, Name: "NVIDIA A10", Minor: 3, PCIBusID: "00000000:1b:00.0"})
	if rig.Flavour() != "release" {
		t.Skip("a sanitizer's library cannot be loaded into a Go program")
	}
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "lib64"), 0o755))
	require.NoError(t, os.Link(filepath.Join(m.programs, "libnvidia-ml.so.1"), filepath.Join(root, "lib64", "libnvidia-ml.so.1")))
	t.Setenv(simcard.DirEnv, m.cards)
	source := nvml.New(nvml.Options{DriverRoot: root, SysfsRoot: root})
	defer source.Close()
	cards, err := source.Cards(t.Context())
	require.NoError(t, err)
	require.Equal(t, []card.Card{{
		UUID: firstUUID, Index: 0, Minor: 3, Vendor: card.VendorNVIDIA, ProductName: "NVIDIA A10", Architecture: "Ampere", ComputeCapability: "8.6",
		DriverVersion: "550.54.14", CUDAVersion: "12.4", PCIBusID: "00000000:1b:00.0", NUMANode: card.Unknown, Memory: 24*1024 - 512,
	}}, cards)
}

func TestNVMLTellsMemoryAndWhoHasIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib, DriverMemory: 100 * mib})
	first := m.hold(t, firstUUID).tell(t, "context 10", "linear 90")
	second := m.hold(t, firstUUID).tell(t, "context 50")
	m.hold(t, firstUUID).tell(t, "linear 1") // no context yet: not in the lists
	dead := m.hold(t, firstUUID).tell(t, "context 70")
	dead.kill()
	both := fmt.Sprintf(" %d=200 %d=100", first.pid(), second.pid())
	instances := fmt.Sprintf(" %d=200/4294967295/4294967295 %d=100/4294967295/4294967295", first.pid(), second.pid())
	require.Equal(t, []string{
		"memory 0 1000 598 402",
		"memory_v2 0 1000 100 598 302",
		"compute read 0" + both,
		"compute_v2 asked 7 2 read 0" + instances,
		"compute_v3 asked 7 2 read 0" + instances,
		"graphics read 0",
		"graphics_v3 asked 0 0 read 0",
		"mps read 0",
		"mps_v3 asked 0 0 read 0",
		"details 0" + both,
	}, m.ask(t, "processes"))
}

func TestNVMLNumbersProcessesAsItsCallerDoes(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root makes PID namespaces")
	}
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	m.hold(t, firstUUID).tell(t, "context 10")
	m.hold(t, firstUUID).tell(t, "context 20")
	cmd := m.command(t, "ask", "processes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	require.Contains(t, output(t, cmd), "compute read 0 4194305=20 4194306=40", "those that it cannot see have numbers that nobody else has")
}

func TestNVMLTellsUtilisationOfThePast(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	half := m.hold(t, firstUUID).tell(t, "context 1", "runs 3000 50")
	tenth := m.hold(t, firstUUID).tell(t, "context 1", "runs 3000 10")
	idle := m.hold(t, firstUUID).tell(t, "context 1", "copies 3000 20")
	lines := m.ask(t, "busy", fmt.Sprint(time.Now().Add(-1500*time.Millisecond).UnixMicro()))
	require.Equal(t, fmt.Sprintf("info 0 %d=50 %d=10 %d=0", half.pid(), tenth.pid(), idle.pid()), lines[2])
	require.Equal(t, fmt.Sprintf("processes asked 7 3 read 0 %d=50 %d=10 %d=0", half.pid(), tenth.pid(), idle.pid()), lines[1])
	require.Equal(t, "rates 0 60 0", lines[0])
	require.Regexp(t, `^samples 0 type 1 count \d+( 60)+$`, lines[3])
	require.Equal(t, "seen 6", lines[4], "nothing is newer than what was seen")
}

func TestNVMLWaitsForEventsThatDoNotCome(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	require.Equal(t, []string{"xid 1 create 0 register 0 unknown 3 wait 10 waited 1 free 0"}, m.ask(t, "events"))
}

func TestNVMLRefusesWrongCalls(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	require.Equal(t, []string{""}, m.ask(t, "wrong"))
}

func TestNVMLIsUsedByManyThreads(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	m.hold(t, firstUUID).tell(t, "context 10", "runs 100 50")
	require.Equal(t, []string{""}, m.ask(t, "threads"))
}

// To close any descriptor of the file of locks would give back the process's lock.
func TestNVMLLeavesTheLocksOfItsProcess(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	h := m.hold(t, firstUUID).tell(t, "context 10", "nvml")
	opened, err := simcard.Open(filepath.Join(m.cards, string(firstUUID)))
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Close()) }()
	truth, err := opened.Truth()
	require.NoError(t, err)
	slot, found := truth.ByPID(h.pid())
	require.True(t, found)
	require.Equal(t, 20*mib, slot.Total())
}
