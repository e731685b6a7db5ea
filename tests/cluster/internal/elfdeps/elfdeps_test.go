// SPDX-License-Identifier: Apache-2.0

package elfdeps

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// compiled builds prog, which needs libouter.so through its run path ($ORIGIN/../lib),
// which needs libinner.so, and returns the directory that holds bin and lib.
func compiled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"bin", "lib"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	for name, source := range map[string]string{
		"inner.c": "int inner(void) { return 40; }\n",
		"outer.c": "int inner(void);\nint outer(void) { return inner() + 2; }\n",
		"prog.c":  "int outer(void);\nint main(void) { return outer(); }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(source), 0o644))
	}
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-o", "lib/libinner.so", "inner.c"},
		{"-shared", "-fPIC", "-o", "lib/libouter.so", "outer.c", "-Llib", "-linner", "-Wl,-rpath,$ORIGIN"},
		{"-o", "bin/prog", "prog.c", "-Llib", "-louter", "-Wl,-rpath,$ORIGIN/../lib,-rpath-link,lib"},
		{"-static", "-o", "bin/static", "prog.c", "outer.c", "inner.c"},
	} {
		command := exec.Command("gcc", args...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return dir
}

func resolver(t *testing.T, provided ...string) Resolver {
	t.Helper()
	r, err := NewResolver(provided)
	require.NoError(t, err)
	return r
}

func TestProgramStartsInARootWithNothingButWhatWasResolved(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root directory")
	}
	dir, root := compiled(t), t.TempDir()
	program := File{Source: filepath.Join(dir, "bin", "prog"), Path: "/opt/app/bin/prog"}
	needed, err := resolver(t).Resolve([]File{program})
	require.NoError(t, err)
	for _, f := range append(needed, program) {
		content, err := os.ReadFile(f.Source)
		require.NoError(t, err)
		target := filepath.Join(root, f.Path)
		require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o755))
		require.NoError(t, os.WriteFile(target, content, 0o755))
	}
	command := exec.Command("chroot", root, program.Path)
	// There is no /proc to read the program's place from, as there is in a container.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LD_ORIGIN_PATH=/opt/app/bin"}
	var exit *exec.ExitError
	require.ErrorAs(t, command.Run(), &exit)
	require.Equal(t, 42, exit.ExitCode())
}

func TestLibrariesBesideTheProgramStayBesideIt(t *testing.T) {
	t.Parallel()
	dir := compiled(t)
	needed, err := resolver(t).Resolve([]File{{Source: filepath.Join(dir, "bin", "prog"), Path: "/opt/app/bin/prog"}})
	require.NoError(t, err)
	var paths []string
	for _, f := range needed {
		paths = append(paths, f.Path)
	}
	require.Contains(t, paths, "/opt/app/lib/libouter.so")
	require.Contains(t, paths, "/opt/app/lib/libinner.so")
	require.True(t, slices.IsSorted(paths))
}

func TestMissingLibraryIsNamed(t *testing.T) {
	t.Parallel()
	dir := compiled(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "lib", "libinner.so")))
	program := []File{{Source: filepath.Join(dir, "bin", "prog"), Path: "/prog"}}
	_, err := resolver(t).Resolve(program)
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "libinner.so")

	_, err = resolver(t, "libinner.so").Resolve(program)
	require.NoError(t, err, "something else brings it")
}

func TestWhatNeedsNothing(t *testing.T) {
	t.Parallel()
	dir := compiled(t)
	script := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o644))
	needed, err := resolver(t).Resolve([]File{
		{Source: filepath.Join(dir, "bin", "static"), Path: "/static"},
		{Source: script, Path: "/script"},
		{Source: empty, Path: "/empty"},
	})
	require.NoError(t, err)
	require.Empty(t, needed)
}

func TestConfigured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
		return file
	}
	write("10.conf", "/opt/one # a comment\n\n")
	write("20.conf", "/opt/two\n")
	got, err := configured(write("ld.so.conf", "# first\ninclude *0.conf\n/opt/three\n"), 0)
	require.NoError(t, err)
	require.Equal(t, []string{"/opt/one", "/opt/two", "/opt/three"}, got)

	got, err = configured(filepath.Join(dir, "absent"), 0)
	require.NoError(t, err)
	require.Empty(t, got)

	_, err = configured(write("loop.conf", "include loop.conf\n"), 0)
	require.ErrorContains(t, err, "nested includes")
}
