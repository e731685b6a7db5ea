// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// library is a shared object of this machine that programs such as cat do not load by themselves.
func library(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/lib/*/libm.so.6")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	path, err := filepath.EvalSymlinks(found[0])
	require.NoError(t, err)
	return path
}

func written(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.so")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestARuntimeThatCannotBeLoadedIsRefusedBeforeAnythingIsMeasured(t *testing.T) {
	t.Parallel()
	good, text, absent := library(t), written(t, []byte("not a library")), filepath.Join(t.TempDir(), "absent.so")
	foreign, err := os.ReadFile(good)
	require.NoError(t, err)
	foreign[18] ^= 1 // e_machine
	for name, row := range map[string]struct {
		args  []string
		wrong string
	}{
		"a preload that is not there":          {[]string{"-preload", absent}, "-preload: open " + absent + ": no such file"},
		"a preload that is a text":             {[]string{"-preload", text}, "-preload: " + text + ": not a shared object"},
		"a preload of another machine":         {[]string{"-preload", written(t, foreign)}, "not a shared object"},
		"a library that is not there":          {[]string{"-library", absent}, "-library: open " + absent + ": no such file"},
		"a library that is a text":             {[]string{"-library", text}, "-library: " + text + ": not a shared object"},
		"beside ours":                          {[]string{"-preload", text, "-beside"}, "-preload: " + text},
		"a stand-in for it that is not there":  {[]string{"-preload", good, "-file", good + "=" + absent}, "-file: stat " + absent},
		"a stand-in for it that is a text":     {[]string{"-preload", "/lib/x.so", "-file", "/lib/x.so=" + text}, "-preload: " + text},
		"a preload by a path that is relative": {[]string{"-preload", "absent.so"}, "/absent.so: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			traces := filepath.Join(t.TempDir(), "traces")
			require.ErrorContains(t, begin(t.Context(), append(row.args, "-traces", traces)), row.wrong)
			require.NoDirExists(t, traces, "nothing has begun")
		})
	}
	require.NoError(t, contender{preload: good}.check())
	require.NoError(t, contender{preload: "/lib/x.so", files: []string{"/lib/x.so=" + good}}.check())
	require.NoError(t, contender{}.check())
}

func TestWhetherAProcessHasThePreload(t *testing.T) {
	t.Parallel()
	preload := library(t)
	start := func(env ...string) int {
		cmd := exec.Command("cat")
		cmd.Env = env
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			require.NoError(t, in.Close())
			require.NoError(t, cmd.Wait())
		})
		_, err = in.Write([]byte("x"))
		require.NoError(t, err)
		_, err = out.Read(make([]byte, 1)) // it runs, so everything is loaded
		require.NoError(t, err)
		return cmd.Process.Pid
	}
	with, without := start("LD_PRELOAD="+preload), start()
	require.NoError(t, loaded(with, preload))
	require.NoError(t, loaded(without, ""), "none is wanted")
	require.ErrorAs(t, loaded(without, preload), new(unmeasured))
	require.ErrorIs(t, loaded(1<<22+1, preload), os.ErrNotExist)
}
