// SPDX-License-Identifier: Apache-2.0

//go:build native

package sim_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// check runs one case of a program, which says what is wrong and fails, or
// neither.
func (m machine) check(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := m.command(t, name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	require.Empty(t, string(out))
}
