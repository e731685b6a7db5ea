// SPDX-License-Identifier: Apache-2.0

package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/durable"
)

func TestStagedContentIsSeenOnceItIsPublished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	put(t, path, "old", 0o600)
	content := func() string {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(data)
	}
	files, taken := steps(dir)
	staged, err := files.Stage(path, []byte("new"), 0o640)
	require.NoError(t, err)
	require.Equal(t, "old", content())
	require.NoError(t, staged.Publish())
	require.Equal(t, "new", content())
	require.Equal(t, []string{"write .f.tmp", "fsync .f.tmp", "rename f"}, *taken, "publishing does not wait for the disk")
	require.NoError(t, staged.Settle())
	require.Equal(t, "sync ", (*taken)[3])
	require.Equal(t, fs.FileMode(0o640), mode(t, path))
	require.Equal(t, []string{"f"}, names(t, dir))
}

func TestDiscardedContentIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	put(t, path, "old", 0o600)
	staged, err := durable.Files{}.Stage(path, []byte("new"), 0o600)
	require.NoError(t, err)
	staged.Discard()
	staged.Discard()
	require.Equal(t, []string{"f"}, names(t, dir))
	err = staged.Publish()
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "write "+path+": ")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(data))
}

// Derived files go the same way, but nobody waits for the disk.
func TestDerivedFilesAreNotSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, taken := steps(dir)
	files.Derived = true
	path := filepath.Join(dir, "d", "f")
	require.NoError(t, files.MkdirAll(filepath.Dir(path), 0o755))
	changed, err := files.Write(path, []byte("x"), 0o444)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, fs.FileMode(0o444), mode(t, path))
	require.NoError(t, files.Remove(path))
	require.NoError(t, files.RemoveAll(filepath.Dir(path)))
	require.Equal(t, "mkdir d, write d/.f.tmp, rename d/f, remove d/f, rmdir d", strings.Join(*taken, ", "))
	require.Empty(t, names(t, dir))
}
