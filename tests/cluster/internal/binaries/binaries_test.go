// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/cluster/internal/lock"
)

// sources makes a directory with every source file.
func sources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range sourceFiles {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
	return dir
}

func TestHashNamesSourcesAndCompiler(t *testing.T) {
	t.Parallel()
	dir := sources(t)
	first, err := hash(dir, "go1.26.8")
	require.NoError(t, err)
	again, err := hash(sources(t), "go1.26.8")
	require.NoError(t, err)
	require.Equal(t, first, again, "the place does not matter")

	seen := map[string]bool{first: true}
	other, err := hash(dir, "go1.26.9")
	require.NoError(t, err)
	require.False(t, seen[other])
	seen[other] = true
	for _, name := range sourceFiles {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("changed"), 0o644))
		changed, err := hash(dir, "go1.26.8")
		require.NoError(t, err)
		require.False(t, seen[changed], name)
		seen[changed] = true
	}
	require.NoError(t, os.Remove(filepath.Join(dir, sourceFiles[0])))
	_, err = hash(dir, "go1.26.8")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// fakeGo puts a compiler first on PATH that writes its outputs and notes each build in a file.
func fakeGo(t *testing.T, body string) (notes string) {
	t.Helper()
	dir := t.TempDir()
	notes = filepath.Join(dir, "notes")
	text := fmt.Sprintf(`#!/bin/sh
if [ "$1" = env ]; then echo go1.26.8; exit; fi
echo build >>%s
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
%s
`, notes, body)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(text), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return notes
}

func builder(t *testing.T) Builder {
	t.Helper()
	return Builder{
		Sources: sources(t), Cache: filepath.Join(t.TempDir(), "cache"),
		Say:    func(format string, args ...any) { t.Logf(format, args...) },
		Finish: func(dir string) error { return os.WriteFile(filepath.Join(dir, "extra"), nil, 0o644) },
	}
}

//nolint:paralleltest // sets PATH
func TestTwoAtOnceBuildOnce(t *testing.T) {
	notes := fakeGo(t, `case $out in */) ;; *) echo program >$out;; esac`)
	b := builder(t)
	var group sync.WaitGroup
	var sets [2]*Set
	for i := range sets {
		group.Go(func() {
			set, err := b.Ensure(t.Context())
			if err == nil {
				sets[i] = set
			}
		})
	}
	group.Wait()
	require.NotNil(t, sets[0])
	require.NotNil(t, sets[1])
	require.Equal(t, sets[0].Dir, sets[1].Dir)
	require.FileExists(t, filepath.Join(sets[0].Dir, "extra"))
	content, err := os.ReadFile(filepath.Join(sets[0].Dir, "kubelet"))
	require.NoError(t, err)
	require.Equal(t, "program\n", string(content), "a link to the combined program")
	built, err := os.ReadFile(notes)
	require.NoError(t, err)
	require.Equal(t, len(steps()), strings.Count(string(built), "build"))
}

//nolint:paralleltest // sets PATH
func TestFailedBuildLeavesNothingAndShowsTheCompiler(t *testing.T) {
	fakeGo(t, `echo some/package >&2; echo "main.go:1:1: bad thing" >&2; exit 1`)
	b := builder(t)
	_, err := b.Ensure(t.Context())
	require.ErrorContains(t, err, "main.go:1:1: bad thing")
	require.NotContains(t, err.Error(), "some/package", "progress is no error")
	entries, err := os.ReadDir(b.Cache)
	require.NoError(t, err)
	require.Empty(t, entries)
}

//nolint:paralleltest // sets PATH
func TestCancelledBuildEndsItsCompilers(t *testing.T) {
	fakeGo(t, `sleep 1000 & wait`)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := builder(t).Ensure(ctx)
	require.Error(t, err)
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}

func TestPruneKeepsTheNewestAndTheUsed(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	aged := func(name string, age time.Duration) string {
		dir := filepath.Join(cache, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		when := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(dir, when, when))
		return dir
	}
	newest, second := aged("a", time.Minute), aged("b", time.Hour)
	used, old, draft := aged("c", 2*time.Hour), aged("d", 3*time.Hour), aged("e"+draftSuffix, 0)
	held, err := lock.TryShared(used)
	require.NoError(t, err)

	require.NoError(t, prune(cache))
	for _, dir := range []string{newest, second, used} {
		require.DirExists(t, dir)
	}
	for _, dir := range []string{old, draft} {
		require.NoDirExists(t, dir)
	}
	require.NoError(t, held.Release())
	require.NoError(t, prune(cache))
	require.NoDirExists(t, used)
}

func TestProgressTellsPackagesFromMessages(t *testing.T) {
	t.Parallel()
	p := newProgress()
	for _, part := range []string{"k8s.io/api/co", "re/v1\nfmt\n# broken", "\nx.go:1: no\nlast"} {
		n, err := p.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.EqualValues(t, 2, p.packages.Load())
	require.Equal(t, "# broken\nx.go:1: no\nlast", p.rest())
}
