// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// residentFile is how much of this process's resident memory is pages of files, in KiB.
func residentFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(status), "RssFile:")
	require.True(t, found)
	var kib int
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib
}

//nolint:paralleltest // what other tests run at the same time would be counted
func TestPagesOfTheProgramAreGivenBackAndReadAgain(t *testing.T) {
	before := residentFile(t)
	require.NoError(t, dropProgramPages())
	after := residentFile(t)
	require.Less(t, after, before)
	// What follows runs from pages that were given back.
	require.NotNil(t, newCommand(os.Getenv))
}
