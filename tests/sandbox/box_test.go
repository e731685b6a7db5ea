// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/sandbox"
)

// open makes a box that is closed with the test.
func open(t *testing.T, cfg sandbox.Config) *sandbox.Box {
	t.Helper()
	if err := sandbox.Usable(); err != nil {
		t.Skip(err)
	}
	box, err := sandbox.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, box.Close()) })
	return box
}

func shell(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

// directory makes a directory with one file.
func directory(t *testing.T, name, content string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	return dir
}

func TestABoxHasWhatItWasGivenAndNothingElseInRun(t *testing.T) {
	t.Parallel()
	box := open(t, sandbox.Config{
		Shares:   map[string]string{"key-1": directory(t, "share.json", "{}"), "key-2": directory(t, "share.json", "{}")},
		Cards:    map[string]string{"GPU-1": directory(t, "card", "c")},
		Driver:   directory(t, "libcuda-real.so.1", "d"),
		Programs: directory(t, "program", "p"),
	})
	said, err := box.Output(shell("cd /run && find . -type f | sort"))
	require.NoError(t, err)
	require.Equal(t, strings.Fields(`
		./programs/program
		./tranche/cards/GPU-1/card
		./tranche/driver/libcuda-real.so.1
		./tranche/key-1/share.json
		./tranche/key-2/share.json`), strings.Fields(said))
}

func TestOnlyCardsCanBeWritten(t *testing.T) {
	t.Parallel()
	cards := directory(t, "card", "")
	box := open(t, sandbox.Config{
		Shares: map[string]string{"key-1": directory(t, "share.json", "{}")},
		Cards:  map[string]string{"GPU-1": cards},
		Driver: directory(t, "libcuda-real.so.1", ""),
	})
	for _, path := range []string{"/run/tranche/key-1/share.json", "/run/tranche/driver/libcuda-real.so.1"} {
		said, err := box.Output(shell("echo x >" + path))
		require.Error(t, err)
		require.Contains(t, said, "Read-only file system")
	}
	_, err := box.Output(shell("echo written >/run/tranche/cards/GPU-1/card"))
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(cards, "card"))
	require.NoError(t, err)
	require.Equal(t, "written\n", string(content))
}

func TestTheLoaderFindsTheBoxesLibraryAndTheMachineIsLeftAlone(t *testing.T) {
	t.Parallel()
	const name = "libtranche-sandbox-test.so.1"
	source, library := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(library, 0o755))
	build := func(args ...string) {
		cmd := exec.Command("gcc", args...)
		cmd.Dir = source
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	require.NoError(t, os.WriteFile(filepath.Join(source, "lib.c"), []byte("int f(void); int f(void) { return 0; }\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(source, "main.c"), []byte("int f(void); int main(void) { return f(); }\n"), 0o644))
	build("-shared", "-fPIC", "lib.c", "-Wl,-soname,"+name, "-o", filepath.Join(library, name))
	build("main.c", filepath.Join(library, name), "-o", "main")

	before, err := os.ReadFile("/etc/ld.so.cache")
	require.NoError(t, err)
	for range 2 { // the second box takes the cache that was made for the first
		box := open(t, sandbox.Config{Library: library, Programs: source})
		cmd := exec.Command("/run/programs/main")
		cmd.Env = []string{}
		said, err := box.Output(cmd)
		require.NoError(t, err, said)
	}
	require.Error(t, exec.Command(filepath.Join(source, "main")).Run(), "outside of a box nobody finds the library")
	after, err := os.ReadFile("/etc/ld.so.cache")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestABoxHasItsOwnPIDsUnlessTheHostsAreWanted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cfg sandbox.Config
		own bool
	}{
		"a PID namespace of its own": {sandbox.Config{}, true},
		"the PIDs of the host":       {sandbox.Config{HostPIDs: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := open(t, row.cfg)
			cmd := shell("echo $$; ls -d /proc/[0-9]* 2>/dev/null | wc -l")
			said, err := box.Output(cmd)
			require.NoError(t, err)
			var inside, seen int
			_, err = fmt.Sscan(said, &inside, &seen)
			require.NoError(t, err)
			require.Equal(t, row.own, inside != cmd.Process.Pid)
			if row.own {
				require.LessOrEqual(t, seen, 4, "of the machine's processes none is seen")
			}
		})
	}
}

func TestAProgramRunsAsAnotherUserWithItsOwnEnvironment(t *testing.T) {
	t.Parallel()
	box := open(t, sandbox.Config{})
	cmd := exec.Command("/bin/sh", "-c", "id -u; env | grep -v ^PWD= | sort")
	cmd.Env = []string{"ONLY=this"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	said, err := box.Output(cmd)
	require.NoError(t, err)
	require.Contains(t, said, "65534\n")
	require.Contains(t, said, "ONLY=this\n")
	require.NotContains(t, said, "HOME=")
}

// gone waits until no process has this PID.
func gone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return syscall.Kill(pid, 0) == syscall.ESRCH
	}, 10*time.Second, 5*time.Millisecond, "process %d is still there", pid)
}

func TestClosingEndsEveryProgramOfTheBox(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sandbox.Config{"own PIDs": {}, "the host's PIDs": {HostPIDs: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := open(t, cfg)
			cmd := exec.Command("/bin/sleep", "1000")
			program, err := box.Start(cmd)
			require.NoError(t, err)
			require.NoError(t, box.Close())
			require.ErrorContains(t, program.Wait(), "killed")
			gone(t, program.PID)
			require.ErrorIs(t, box.Run(exec.Command("/bin/true")), sandbox.ErrClosed)
		})
	}
}

func TestClosingEndsWhatLeftItsParent(t *testing.T) {
	t.Parallel()
	box := open(t, sandbox.Config{})
	// In a session of its own, its parent gone; found by an argument that no other has.
	argument := fmt.Sprintf("1000.%d", os.Getpid())
	said, err := box.Output(shell("setsid sleep " + argument + " >/dev/null 2>&1 & echo $!"))
	require.NoError(t, err)
	require.NoError(t, box.Run(shell("kill -0 "+said)))
	require.NoError(t, box.Close())
	arguments, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range arguments {
		if content, err := os.ReadFile(path); err == nil {
			require.NotContains(t, string(content), "sleep\x00"+argument, path)
		}
	}
}

func TestWrongDirectoriesAreNamed(t *testing.T) {
	t.Parallel()
	if err := sandbox.Usable(); err != nil {
		t.Skip(err)
	}
	_, err := sandbox.New(sandbox.Config{Shares: map[string]string{"key": "/nowhere/at/all"}})
	require.ErrorContains(t, err, "make box: bind /nowhere/at/all to /run/tranche/key: no such file or directory")
}

func TestManyBoxesAtOnceDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint("box ", i), func(t *testing.T) {
			t.Parallel()
			box := open(t, sandbox.Config{})
			said, err := box.Output(shell(fmt.Sprintf("echo %d >/run/mine; cat /run/mine; ls /run", i)))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%d\nmine\ntranche\n", i), said)
		})
	}
	require.NoFileExists(t, "/run/mine")
}
