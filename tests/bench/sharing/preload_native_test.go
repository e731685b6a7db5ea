// SPDX-License-Identifier: Apache-2.0

//go:build native

package main

import (
	"debug/elf"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// broken is a shared object in which only the loader finds a fault, and programs run without it.
func broken(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(library(t))
	require.NoError(t, err)
	content[elf.EI_OSABI] = 0xff
	return written(t, content)
}

func TestFiguresWithoutThePreloadAreNotPassedOffAsItsOwn(t *testing.T) {
	t.Parallel()
	for name, preload := range map[string]string{"broken": broken(t), "sound": library(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			require.NoError(t, begin(t.Context(), []string{
				"-preload", preload, "-name", name, "-seconds", "1", "-realtime=false", "-out", out,
				"-only", "one process of 50|^launch gate$",
			}))
			content, err := os.ReadFile(filepath.Join(out, "sharing-"+name+".json"))
			require.NoError(t, err)
			var rows []struct{ Missing string }
			require.NoError(t, json.Unmarshal(content, &rows))
			require.GreaterOrEqual(t, len(rows), 2)
			for _, row := range rows {
				if name == "broken" {
					require.Contains(t, row.Missing, "is not in the tenants' processes")
				} else {
					require.NotContains(t, row.Missing, "is not in")
				}
			}
		})
	}
}
