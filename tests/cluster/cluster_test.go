// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// These tests start real clusters; the first run builds Kubernetes.

// tool is the built tranche-cluster with a temporary directory of its own.
type tool struct{ path, temp string }

func newTool(t *testing.T) tool {
	t.Helper()
	dir := t.TempDir()
	built := tool{path: filepath.Join(dir, "tranche-cluster"), temp: filepath.Join(dir, "tmp")}
	require.NoError(t, os.Mkdir(built.temp, 0o700))
	out, err := exec.Command("go", "build", "-o", built.path, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return built
}

// command prepares a call; its standard error is shown as it comes.
func (c tool) command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	command := exec.CommandContext(t.Context(), c.path, args...)
	command.Env = append(os.Environ(), "TMPDIR="+c.temp)
	command.Stdout, command.Stderr = out, t.Output()
	return command, out
}

func (c tool) output(t *testing.T, args ...string) string {
	t.Helper()
	command, out := c.command(t, args...)
	require.NoError(t, command.Run())
	return strings.TrimSpace(out.String())
}

// requireNothingLeft looks for what the run of the given process might have left on the machine.
func (c tool) requireNothingLeft(t *testing.T, pid int) {
	t.Helper()
	require.Empty(t, cgroupsOf(t, pid))
	work, err := filepath.Glob(filepath.Join(c.temp, "tranche-e2e-*"))
	require.NoError(t, err)
	require.Empty(t, work)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), c.temp)
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range processes {
		line, err := os.ReadFile(file)
		if err == nil { // it may have ended since
			require.NotContains(t, string(line), c.temp+"/tranche-e2e-", file)
		}
	}
}

func cgroupsOf(t *testing.T, pid int) []string {
	t.Helper()
	name := fmt.Sprintf("tranche-e2e-%d", pid)
	found, err := filepath.Glob("/sys/fs/cgroup/" + name)
	require.NoError(t, err)
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	require.NoError(t, err)
	return append(found, hierarchies...)
}

// runUntil starts a run and waits until its command has made a file.
func (c tool) runUntilUp(t *testing.T) *exec.Cmd {
	t.Helper()
	up := filepath.Join(c.temp, "up")
	command, _ := c.command(t, "run", "--", "sh", "-c", "touch "+up+"; sleep 1000")
	require.NoError(t, command.Start())
	require.Eventually(t, func() bool {
		_, err := os.Stat(up)
		return err == nil
	}, 5*time.Minute, 100*time.Millisecond)
	require.NotEmpty(t, cgroupsOf(t, command.Process.Pid))
	return command
}

func TestNodeRunsPodsAndOutlivesItsComponents(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	programs := c.output(t, "build", "--print")
	archive := filepath.Join(c.temp, "smoke.tar")
	c.output(t, "image", "--output", archive, "--name", "localhost/tranche/smoke:1",
		"/bin/sh=/bin/sh", "/bin/sleep=/bin/sleep", filepath.Join(programs, "kube")+"=/bin/kubectl")

	command, out := c.command(t, "run", "--timeout", "5m", "--image", archive, "--", "sh", "testdata/smoke.sh", "testdata/pods.yaml")
	require.NoError(t, command.Run(), out)
	require.Contains(t, out.String(), "smoke passed")
	c.requireNothingLeft(t, command.Process.Pid)
}

func TestFakeNodesTakePodsFromAnotherScheduler(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	programs := c.output(t, "build", "--print")
	// Any scheduler will do that is not where the cluster's own is.
	scheduler := filepath.Join(c.temp, "kube-scheduler")
	require.NoError(t, os.Symlink(filepath.Join(programs, "kube"), scheduler))

	command, out := c.command(t, "run", "--timeout", "5m", "--fake-nodes", "--scheduler", scheduler, "--scheduler-config", "testdata/scheduler.yaml",
		"--", "sh", "testdata/fake.sh", "testdata/fake.yaml")
	require.NoError(t, command.Run(), out)
	require.Contains(t, out.String(), "fake passed")
	c.requireNothingLeft(t, command.Process.Pid)
}

func TestStatusIsTheCommands(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	command, _ := c.command(t, "run", "--", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	require.ErrorAs(t, command.Run(), &exit)
	require.Equal(t, 7, exit.ExitCode())
	c.requireNothingLeft(t, command.Process.Pid)
	logs, err := filepath.Glob(filepath.Join(c.temp, "tranche-cluster-logs-*", "kubelet.log"))
	require.NoError(t, err)
	require.Len(t, logs, 1, "after a failure the logs stay")
}

func TestDeathOfAComponentFailsTheRun(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	command, _ := c.command(t, "run", "--", "sh", "-c",
		`kill -KILL $(tranche-cluster ctl status | sed -n 's/^kubelet *running *\([0-9]*\).*/\1/p'); sleep 1000`)
	var told bytes.Buffer
	command.Stderr = &told
	var exit *exec.ExitError
	require.ErrorAs(t, command.Run(), &exit)
	require.Equal(t, 125, exit.ExitCode())
	require.Contains(t, told.String(), "kubelet ended unasked: signal: killed; the end of its log:")
	c.requireNothingLeft(t, command.Process.Pid)
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	command := c.runUntilUp(t)
	require.NoError(t, command.Process.Signal(unix.SIGINT))
	var exit *exec.ExitError
	require.ErrorAs(t, command.Wait(), &exit)
	require.Equal(t, 130, exit.ExitCode())
	c.requireNothingLeft(t, command.Process.Pid)
}

func TestNextRunCleansUpAfterAKilledOne(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	killed := c.runUntilUp(t)
	require.NoError(t, killed.Process.Kill())
	require.Error(t, killed.Wait())
	require.NotEmpty(t, cgroupsOf(t, killed.Process.Pid), "nobody was there to remove them")

	c.output(t, "run", "--", "true")
	c.requireNothingLeft(t, killed.Process.Pid)
}
