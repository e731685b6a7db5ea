// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi/runtime/gen/hooks"
)

const (
	lists      = "../testdata/cuda"
	runtimeDir = "../../cdi/runtime"
)

func table(t *testing.T) hooks.Table {
	t.Helper()
	table, err := hooks.Load(filepath.Join(runtimeDir, hooks.File))
	require.NoError(t, err)
	return table
}

// symbolLists has the exported names of each driver, by file.
func symbolLists(t *testing.T, library hooks.Library) map[string][]string {
	t.Helper()
	prefix := map[hooks.Library]string{hooks.CUDA: "symbols-libcuda-", hooks.NVML: "symbols-nvml-"}[library]
	files, err := filepath.Glob(filepath.Join(lists, prefix+"*.txt"))
	require.NoError(t, err)
	require.Len(t, files, 4, "drivers 470, 535, 550, and what CUDA 12.5 to 13 added")
	names := map[string][]string{}
	for _, file := range files {
		names[filepath.Base(file)] = readList(t, file)
	}
	return names
}

func readList(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	names := strings.Fields(string(text))
	require.NotEmpty(t, names)
	return names
}

// answer is a line of a gpa-table: from version since on (and until another answer
// of the same name and flags), cuGetProcAddress gives symbol for name.
type answer struct {
	name   string
	flags  int
	since  int
	symbol string
}

var answerForm = regexp.MustCompile(`^(\w+) flags=(\d) since=(\d+) -> (\w+)$`)

func answers(t *testing.T) map[string][]answer {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(lists, "gpa-table-*.txt"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	tables := map[string][]answer{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			match := answerForm.FindStringSubmatch(strings.TrimSpace(line))
			require.NotNil(t, match, "%s: %s", file, line)
			flags, _ := strconv.Atoi(match[2])
			since, _ := strconv.Atoi(match[3])
			tables[filepath.Base(file)] = append(tables[filepath.Base(file)], answer{match[1], flags, since, match[4]})
		}
	}
	return tables
}
