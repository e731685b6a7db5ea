// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

const (
	nobody      = 65534
	loaderLimit = 384
)

// limited runs a program that takes all that it can have and says "full bytes=N
// total=N", and wants both to be the share's.
func limited(t *testing.T, p place, cmd *exec.Cmd) {
	t.Helper()
	lines, err := rig.RunCommand(t.Context(), p.box, cmd)
	require.NoError(t, err)
	full := 0
	for _, line := range lines {
		if line.Word != "full" {
			continue
		}
		full++
		require.Equal(t, p.share.Limit, amount(t, line, "total"), line.Text)
		bytes := amount(t, line, "bytes")
		require.LessOrEqual(t, bytes, (loaderLimit-64)*rig.MiB, line.Text)
		require.Greater(t, bytes, (loaderLimit-64-96)*rig.MiB, line.Text)
	}
	require.NotZero(t, full, "the program never said that it is full: %v", lines)
	p.gone(t)
	p.neverAbove(t)
}

func command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	return cmd
}

func asNobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

func TestHoweverAProgramComesByTheDriverItIsLimited(t *testing.T) {
	t.Parallel()
	fill, loader := rig.Client("fill"), rig.Client("loader")
	for name, row := range map[string]struct {
		cmd func(env []string) *exec.Cmd
		// release: programs are in between that no sanitizer was built into.
		release string
	}{
		"linked":                         {cmd: func(env []string) *exec.Cmd { return command(env, fill, "alloc", "16") }},
		"dlopen":                         {cmd: func(env []string) *exec.Cmd { return command(env, loader, "dlopen") }},
		"dlopen for all":                 {cmd: func(env []string) *exec.Cmd { return command(env, loader, "global") }},
		"dlopen with deep binding":       {cmd: func(env []string) *exec.Cmd { return command(env, loader, "deepbind") }, release: "address sanitizer forbids RTLD_DEEPBIND"},
		"dlmopen":                        {cmd: func(env []string) *exec.Cmd { return command(env, loader, "dlmopen") }, release: "a sanitizer's library cannot be there twice"},
		"dlsym of the default namespace": {cmd: func(env []string) *exec.Cmd { return command(env, loader, "default") }},
		"dlsym by dlvsym":                {cmd: func(env []string) *exec.Cmd { return command(env, loader, "dlvsym") }},
		"cuGetProcAddress":               {cmd: func(env []string) *exec.Cmd { return command(env, loader, "entry") }},
		"a versioned file name": {cmd: func(env []string) *exec.Cmd {
			return command(env, loader, "dlopen", filepath.Join(sandbox.LibraryDir, "libcuda.so.550.54.14"))
		}},
		"an empty environment": {cmd: func(env []string) *exec.Cmd { return command(env, "/usr/bin/env", "-i", fill, "alloc", "16") }},
		"a preload unset": {cmd: func(env []string) *exec.Cmd {
			return command(env, "/usr/bin/env", "-u", "LD_PRELOAD", fill, "alloc", "16")
		}},
		"a user without rights": {cmd: func(env []string) *exec.Cmd {
			return asNobody(command(env, fill, "alloc", "16"))
		}},
		"su": {cmd: func(env []string) *exec.Cmd {
			return command(env, "/bin/su", "-s", "/bin/sh", "nobody", "-c", fill+" alloc 16")
		}, release: "su resets the sanitizers' options"},
		"ctypes": {cmd: func(env []string) *exec.Cmd {
			return command(env, "/usr/bin/python3", rig.Client("ctypes_fill.py"), "plain")
		}, release: "python was built without it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if row.release != "" {
				onlyRelease(t, row.release)
			}
			limited(t, newPlace(t, loaderLimit), row.cmd(rig.Environment()))
		})
	}
}

func TestAProgramOfTwoUsersIsLimited(t *testing.T) {
	t.Parallel()
	onlyRelease(t, "sanitizers do not work in set-user-ID programs")
	p := newPlace(t, loaderLimit)
	native, err := rig.Native()
	require.NoError(t, err)
	const path = "/run/suid/fill"
	program(t, p.box, filepath.Join(native, "clients", "fill"), path, 0o755|os.ModeSetuid)
	id := "/run/suid/id"
	program(t, p.box, "/usr/bin/id", id, 0o755|os.ModeSetuid)
	said, err := p.box.Output(asNobody(command(nil, id, "-u")))
	require.NoError(t, err)
	require.Equal(t, "0", strings.TrimSpace(said), "set-user-ID programs do not work in boxes here")
	limited(t, p, asNobody(command([]string{"LD_LIBRARY_PATH=" + sandbox.DriverDir, "LD_PRELOAD=/nowhere.so"}, path, "alloc", "16")))
}

// Children of multiprocessing.
func TestChildrenOfPythonAreLimited(t *testing.T) {
	t.Parallel()
	onlyRelease(t, "python was built without it")
	for _, method := range []string{"fork", "spawn"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			limited(t, newPlace(t, loaderLimit), command(rig.Environment(), "/usr/bin/python3", rig.Client("ctypes_fill.py"), method))
		})
	}
}

// Built with musl, or linked statically, or without any use for the
// card, a program runs as everywhere else.
func TestProgramsThatDoNotUseTheCardAreNotDisturbed(t *testing.T) {
	t.Parallel()
	onlyRelease(t, "nothing of ours is in these programs")
	need(t)
	dir, source := t.TempDir(), filepath.Join("..", "clients", "stranger.c")
	require.NoError(t, os.Chmod(dir, 0o755))
	for name, compiler := range map[string][]string{
		"glibc": {"gcc"}, "static": {"gcc", "-static"}, "musl": {"musl-gcc"}, "static-musl": {"musl-gcc", "-static"},
	} {
		out, err := exec.Command(compiler[0], append(compiler[1:], source, "-o", filepath.Join(dir, name))...).CombinedOutput()
		require.NoError(t, err, "%s (Debian's package musl-tools has musl-gcc)", out)
	}
	p := newPlace(t, 256)
	for _, name := range []string{"glibc", "static", "musl", "static-musl"} {
		path := filepath.Join("/run/strangers", name)
		program(t, p.box, filepath.Join(dir, name), path, 0o755)
		said, err := p.box.Output(command([]string{}, path))
		require.NoError(t, err, "%s: %s", name, said)
		require.Equal(t, "stranger mapped=0\n", said, name)
	}
	attached, err := rig.OpenLedger(t.Context(), p.share)
	require.NoError(t, err)
	defer attached.Close() //nolint:errcheck // only looked at
	require.Zero(t, attached.Attached(), "nobody attached to the share")
}
