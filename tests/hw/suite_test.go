// SPDX-License-Identifier: Apache-2.0

//go:build native

package hw_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// suite runs the suite and returns what it printed.
func suite(t *testing.T, args ...string) (string, error) {
	t.Helper()
	arbiter, err := rig.ArbiterProgram()
	require.NoError(t, err)
	cmd := exec.Command("/usr/bin/python3", append([]string{"-B", "suite.py", "--arbiter", arbiter}, args...)...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	return string(out), err
}

func need(t *testing.T) string {
	t.Helper()
	if err := sandbox.Usable(); err != nil {
		t.Skipf("%v: run it as root", err)
	}
	native, err := rig.Native()
	require.NoError(t, err)
	return native
}

func TestTheSuitePassesWhereTheRuntimeLimits(t *testing.T) {
	t.Parallel()
	said, err := suite(t, "--simulated", "--native", need(t))
	require.NoError(t, err)
	require.Contains(t, said, "the runtime is mounted over the driver's files")
	require.Contains(t, said, " 0 failed, ")
	require.NotContains(t, said, "no time is left")
	require.Regexp(t, `20/30/50: farthest from it, over 0\.8 s +at most 2 points `, said)
	require.Contains(t, said, "\nNO is a figure that misses its target, and no failure. The figures of a simulated card mean nothing.\n")
	require.NotRegexp(t, `(?m)^[^P\n].* skipped +\d`, said, "all but PyTorch has been tried")
}

// In many containers nobody may mount anything, root included.
func TestTheSuitePassesWithoutTheRightToMount(t *testing.T) {
	t.Parallel()
	native := need(t)
	arbiter, err := rig.ArbiterProgram()
	require.NoError(t, err)
	box, err := sandbox.New(sandbox.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	here, err := os.Getwd()
	require.NoError(t, err)
	said, err := box.Output(exec.Command("/usr/bin/setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin",
		"/usr/bin/python3", "-B", filepath.Join(here, "suite.py"), "--simulated", "--native", native, "--arbiter", arbiter))
	t.Log(said)
	require.NoError(t, err)
	require.Contains(t, said, "the runtime is by LD_LIBRARY_PATH (unshare: Operation not permitted)")
	require.Contains(t, said, " 0 failed, ")
	left, err := box.Output(exec.Command("/bin/ls", "-A", sandbox.TrancheDir))
	require.NoError(t, err)
	require.Empty(t, left, "it has made nothing in the place that is for containers")
}

func TestFiguresAreWorkedOutRight(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("/usr/bin/python3", "-B", "-m", "doctest", "-v", "figures.py").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "Test passed.")
}

func TestTheSuiteFailsWhereNothingLimits(t *testing.T) {
	t.Parallel()
	native := need(t)
	// The driver itself in place of the runtime.
	without := t.TempDir()
	for _, name := range []string{"sim", "bin", "clients"} {
		require.NoError(t, os.Symlink(filepath.Join(native, name), filepath.Join(without, name)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(without, "runtime"), 0o755))
	for _, name := range []string{"libcuda", "libnvidia-ml"} {
		require.NoError(t, os.Symlink(filepath.Join(native, "sim", name+"-real.so.1"), filepath.Join(without, "runtime", name+".so.1")))
	}
	said, err := suite(t, "--simulated", "--native", without, "--minutes", "0.1")
	require.Error(t, err)
	require.Regexp(t, `fill by alloc +FAILED .*the card held \d+ MiB, the limit is 2048`, said)
}

func TestTheSuiteSaysSoWhereThereIsNoGPU(t *testing.T) {
	t.Parallel()
	native := need(t)
	if exec.Command("/usr/bin/python3", "-c", "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')").Run() == nil {
		t.Skip("this machine has NVIDIA's driver: make test-hw tests it")
	}
	said, err := suite(t, "--native", native)
	require.NoError(t, err)
	require.Regexp(t, `^make test-hw: skipped: there is no NVIDIA GPU to test on \(.*\); HWFLAGS=--simulated tests the suite itself\n$`, said)
}
