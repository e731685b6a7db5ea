// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestComplaintNamesProgramsReasonsAndPackages(t *testing.T) {
	t.Parallel()
	err := complain(needs)
	for _, n := range needs {
		require.ErrorContains(t, err, n.program+" ("+n.why+"; Debian package "+n.debian+")")
	}
}

func TestFindPrefersThePathAndKnowsThePlacesBesideIt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	require.NotEmpty(t, find("mount"), "it is in /bin or /usr/bin")
	mine := filepath.Join(dir, "mount")
	require.NoError(t, os.WriteFile(mine, []byte("#!/bin/sh\n"), 0o755))
	require.Equal(t, mine, find("mount"))
	require.Empty(t, find("no-such-program"))
}
