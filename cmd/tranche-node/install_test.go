// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// install runs the sub-command and returns what it prints.
func install(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newInstallCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInstallRuntimePrintsWhereItIs(t *testing.T) {
	t.Parallel()
	source, err := fixture.Libraries(t.Context(), t.TempDir(), t.TempDir())
	require.NoError(t, err)
	root := t.TempDir() + "/state/runtime"
	for range 2 {
		out, err := install(t, "--from", source, "--to", root)
		require.NoError(t, err)
		store := libraries.NewStore(root, source)
		digest, err := store.Current()
		require.NoError(t, err)
		runtime, err := store.Find(digest)
		require.NoError(t, err)
		require.Equal(t, runtime.Dir+"\n", out)
	}
}

func TestInstallRuntimeRefuses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"a source without libraries":                    {[]string{"--from=" + t.TempDir(), "--to=" + t.TempDir()}, "runtime/libcuda.so.1: no such file"},
		"a place that depends on the working directory": {[]string{"--to=runtime"}, "as an absolute path"},
		"no source":   {[]string{"--from="}, "want two directories"},
		"an argument": {[]string{"x"}, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := install(t, row.args...)
			require.ErrorContains(t, err, row.says)
		})
	}
}

// The init container and the driver name the same directories without being told.
func TestInstallRuntimeHasTheDriversDefaults(t *testing.T) {
	t.Parallel()
	config := v1alpha1.NewNodeConfig()
	v1alpha1.SetNodeDefaults(config)
	flags := newInstallCommand().Flags()
	require.Equal(t, config.RuntimeSource, flags.Lookup("from").DefValue)
	require.Equal(t, config.RuntimeDir, flags.Lookup("to").DefValue)
	require.True(t, strings.HasPrefix(config.RuntimeDir, config.StateDir))
}
