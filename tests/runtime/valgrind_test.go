// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/rig"
)

func TestValgrindFindsNothing(t *testing.T) {
	t.Parallel()
	onlyRelease(t, "a sanitizer and valgrind exclude each other")
	need(t)
	path, err := exec.LookPath("valgrind")
	require.NoError(t, err, "Debian's package valgrind has it")
	for name, args := range map[string][]string{
		"linear memory": {"fill", "alloc", "64"},
		"pools":         {"fill", "pool", "64"},
		"mapped memory": {"fill", "vmm", "64"},
		"graphs":        {"fill", "capture", "64"},
		"small ones":    {"counted", "small"},
		"launches":      {"launches", "graphs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 512)
			all := append([]string{"--quiet", "--error-exitcode=9", rig.Client(args[0])}, args[1:]...)
			cmd := exec.Command(path, all...)
			cmd.Env = rig.Environment()
			lines, err := rig.RunCommand(t.Context(), p.box, cmd)
			require.NoError(t, err)
			require.NotEmpty(t, lines)
			p.gone(t)
		})
	}
}
