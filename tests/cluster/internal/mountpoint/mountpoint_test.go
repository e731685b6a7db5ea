// SPDX-License-Identifier: Apache-2.0

package mountpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClearTakesOnlyWhatMakeMadeAndIsEmpty(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may mark directories")
	}
	parent := t.TempDir()
	before, made, used := filepath.Join(parent, "before"), filepath.Join(parent, "deep", "made"), filepath.Join(parent, "used")
	require.NoError(t, os.Mkdir(before, 0o755))
	all := []string{before, made, used, filepath.Join(parent, "never")}
	for _, dir := range all[:3] {
		require.NoError(t, Make(dir))
		require.NoError(t, Make(dir), "again")
		require.DirExists(t, dir)
	}
	require.NoError(t, os.WriteFile(filepath.Join(used, "file"), nil, 0o644))

	require.NoError(t, Clear(all))
	require.DirExists(t, before)
	require.DirExists(t, used)
	require.NoDirExists(t, made)
}
