// SPDX-License-Identifier: Apache-2.0

// Package golden compares what a test got with a file that holds what it should
// get. "go test -update" writes the files anew; what changed is then read in the
// diff, before it is committed.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// update is one flag for all test binaries that use this package.
var update = flag.Bool("update", false, "write the golden files anew")

// Equal checks that got is the content of testdata/<name>.
func Equal(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test -update writes it")
	require.Equal(t, string(want), string(got), "go test -update writes it anew, if the change is meant")
}
