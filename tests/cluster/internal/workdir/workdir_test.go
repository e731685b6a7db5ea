// SPDX-License-Identifier: Apache-2.0

package workdir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/cluster/internal/lock"
)

func TestTemporarySweepsTheDeadOnly(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	living, err := Temporary(t.Context(), parent)
	require.NoError(t, err)
	dead := filepath.Join(parent, prefix+"dead")
	require.NoError(t, os.MkdirAll(filepath.Join(dead, "data"), 0o755))
	other := filepath.Join(parent, "other")
	require.NoError(t, os.Mkdir(other, 0o755))

	second, err := Temporary(t.Context(), parent)
	require.NoError(t, err)
	require.NotEqual(t, living.Path, second.Path)
	require.DirExists(t, living.Path)
	require.DirExists(t, other)
	require.NoDirExists(t, dead)
}

func TestRemoveKeepsTheLogsOnDemand(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"after a success": false, "after a failure": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := Temporary(t.Context(), t.TempDir())
			require.NoError(t, err)
			fill(t, dir.Path)
			left, err := dir.Remove(keep)
			require.NoError(t, err)
			require.NoDirExists(t, dir.Path)
			if !keep {
				require.Empty(t, left)
				return
			}
			require.FileExists(t, filepath.Join(left, "kubelet.log"))
		})
	}
}

func TestRemoveWithoutLogsLeavesNothing(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir, err := Temporary(t.Context(), parent)
	require.NoError(t, err)
	left, err := dir.Remove(true)
	require.NoError(t, err)
	require.Empty(t, left)
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestNamedStartsEmptyAndLeavesOnlyLogs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "work")
	fill(t, path)
	mine := filepath.Join(path, "notes")
	require.NoError(t, os.WriteFile(mine, nil, 0o644))

	dir, err := Named(path)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(path, "data"))
	require.NoDirExists(t, filepath.Join(path, "log"))
	require.FileExists(t, mine, "not ours")
	_, err = Named(path)
	require.ErrorIs(t, err, lock.ErrHeld)

	fill(t, path)
	left, err := dir.Remove(false)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(left, "kubelet.log"))
	require.NoDirExists(t, filepath.Join(path, "data"))
	require.FileExists(t, mine)
}

func fill(t *testing.T, dir string) {
	t.Helper()
	for _, part := range []string{"data", "etc", "pki", "log"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, part), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "log", "kubelet.log"), []byte("x"), 0o644))
}
