// SPDX-License-Identifier: Apache-2.0

//go:build native

package sim_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
)

// builtCUDA is the directory with the simulated libcuda, under the name that
// programs load.
var builtCUDA = sync.OnceValues(func() (string, error) {
	dir, err := built()
	if err != nil {
		return "", err
	}
	cuda := filepath.Join(dir, "cuda")
	return cuda, cmp.Or(os.Mkdir(cuda, 0o700), os.Link(filepath.Join(dir, "libcuda-real.so.1"), filepath.Join(cuda, "libcuda.so.1")))
})

// programs are those of testdata that use libcuda, by name; each compiled once.
var programs sync.Map

// newDriver is a machine with cards and the simulated libcuda, on which the
// program testdata/NAME.c can run.
func newDriver(t *testing.T, name string, configs ...simcard.Config) machine {
	t.Helper()
	m := newMachine(t, configs...)
	dir, err := builtCUDA()
	require.NoError(t, err)
	compiled, _ := programs.LoadOrStore(name, sync.OnceValue(func() error {
		return compile(filepath.Join(dir, name), filepath.Join("testdata", name+".c"), filepath.Join(dir, "libcuda.so.1"))
	}))
	require.NoError(t, compiled.(func() error)())
	m.programs = dir
	return m
}

// check runs one case of a program, which says what is wrong and fails, or
// neither.
func (m machine) check(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := m.command(t, name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	require.Empty(t, string(out))
}
