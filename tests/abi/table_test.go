// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi/runtime/gen/hooks"
)

// unclassified returns the symbols that have no row of their library.
func unclassified(table hooks.Table, library hooks.Library, symbols []string) []string {
	var missing []string
	for _, symbol := range symbols {
		if row, ok := table.Lookup(symbol); !ok || row.Library != library {
			missing = append(missing, symbol)
		}
	}
	return missing
}

func TestEverySymbolOfEveryDriverHasARow(t *testing.T) {
	t.Parallel()
	table := table(t)
	for _, library := range []hooks.Library{hooks.CUDA, hooks.NVML} {
		for file, symbols := range symbolLists(t, library) {
			require.Empty(t, unclassified(table, library, symbols),
				"symbols of %s that hooks.tsv does not have; package cdi/runtime/gen/hooks says how to add one", file)
		}
	}
}

func TestEveryRowIsASymbolOfSomeDriver(t *testing.T) {
	t.Parallel()
	for _, library := range []hooks.Library{hooks.CUDA, hooks.NVML} {
		known := map[string]bool{}
		for _, symbols := range symbolLists(t, library) {
			for _, symbol := range symbols {
				known[symbol] = true
			}
		}
		for _, row := range table(t).Of(library) {
			require.True(t, known[row.Symbol], "%s in line %d of hooks.tsv is in no list of tests/testdata/cuda", row.Symbol, row.Line)
		}
	}
}

// suspicious are words of names of functions that take memory, give it back or
// start work. Many others have them too: those say in their row why they pass.
var suspicious = map[hooks.Class]*regexp.Regexp{
	hooks.Allocate: regexp.MustCompile(`Alloc|Create|Retain|Import|Open|Map(Resources|Array|Buffer|$|_)|Load|Instantiate|Upload|` +
		`Bind|Register|Attach|MemPool|Reserve|SetLimit|Restore|GetMapped|Prefetch`),
	hooks.Free: regexp.MustCompile(`Free|Destroy|Release|Unload|Unmap|Unbind|Close|Unregister|Detach|Reset|Trim|Discard|Evict`),
	// Copies and fills are the engines' work.
	hooks.Launch: regexp.MustCompile(`Launch|Memcpy|Memset|Decompress|Execute|Submit`),
}

// unexplained returns the passes whose names sound like more and that do not
// say why they pass.
func unexplained(table hooks.Table) []string {
	var found []string
	for _, row := range table {
		if row.Hooked() || row.Reason != "" {
			continue
		}
		for _, class := range []hooks.Class{hooks.Allocate, hooks.Free, hooks.Launch} {
			if suspicious[class].MatchString(row.Symbol) {
				found = append(found, fmt.Sprintf("%s (%s?)", row.Symbol, class))
			}
		}
	}
	return found
}

func TestNothingThatSoundsLikeMemoryOrWorkPassesWithoutAReason(t *testing.T) {
	t.Parallel()
	require.Empty(t, unexplained(table(t)), "hook it, or give the reason why it passes in the last column of hooks.tsv")
}

func TestChecksFindWhatTheyLookFor(t *testing.T) {
	t.Parallel()
	sound := table(t)
	without := func(symbol string) hooks.Table {
		return slices.DeleteFunc(slices.Clone(sound), func(row hooks.Row) bool { return row.Symbol == symbol })
	}
	passing := func(symbol string, library hooks.Library) hooks.Table {
		return append(without(symbol), hooks.Row{Symbol: symbol, Library: library, Class: hooks.Pass})
	}
	require.Equal(t, []string{"cuMemCreate"}, unclassified(without("cuMemCreate"), hooks.CUDA, []string{"cuInit", "cuMemCreate"}))
	require.Equal(t, []string{"cuMemCreate"}, unclassified(passing("cuMemCreate", hooks.NVML), hooks.CUDA, []string{"cuInit", "cuMemCreate"}))
	for symbol, class := range map[string]hooks.Class{
		"cuMemAlloc_v2": hooks.Allocate, "cuMemFreeAsync_ptsz": hooks.Free, "cuLaunchKernel": hooks.Launch,
		"cuGraphLaunch_ptsz": hooks.Launch, "cuMemMap": hooks.Allocate, "cuCtxSetLimit": hooks.Allocate, "cuFutureAllocThing": hooks.Allocate,
	} {
		require.Equal(t, []string{fmt.Sprintf("%s (%s?)", symbol, class)}, unexplained(passing(symbol, hooks.CUDA)))
	}
	require.NotEmpty(t, halfHooked(passing("cuMemAlloc", hooks.CUDA)))
	require.NotEmpty(t, halfHooked(passing("cuMemAllocAsync_ptsz", hooks.CUDA)))
	require.NotEmpty(t, halfHooked(passing("nvmlDeviceGetMemoryInfo_v2", hooks.NVML)))
}

// Of one function a program may get any version.
var variant = regexp.MustCompile(`(_v\d+)?(_pt[sd][sz])?$`)

// halfHooked returns functions of which some versions are hooked, and some pass.
func halfHooked(table hooks.Table) []string {
	hooked := map[string]bool{}
	for _, row := range table.Hooked() {
		hooked[variant.ReplaceAllString(row.Symbol, "")] = true
	}
	var found []string
	for _, row := range table {
		if !row.Hooked() && hooked[variant.ReplaceAllString(row.Symbol, "")] {
			found = append(found, row.Symbol)
		}
	}
	return found
}

func TestAllVersionsOfAHookedFunctionAreHooked(t *testing.T) {
	t.Parallel()
	require.Empty(t, halfHooked(table(t)))
}

func TestEveryHookedAnswerOfCuGetProcAddressHasAWrapper(t *testing.T) {
	t.Parallel()
	table := table(t)
	first := map[string]answer{}
	for file, lines := range answers(t) {
		for _, line := range lines {
			row, ok := table.Lookup(line.symbol)
			require.True(t, ok, "%s answers %s, which hooks.tsv does not have", file, line.symbol)
			if !row.Hooked() {
				continue
			}
			require.Equal(t, line.name, row.Base, "%s: base of %s", file, row.Symbol)
			if before, ok := first[row.Symbol]; !ok || line.since < before.since {
				first[row.Symbol] = line
			}
		}
	}
	require.Greater(t, len(first), 100)
	for symbol, line := range first {
		row, _ := table.Lookup(symbol)
		require.Equal(t, line.since, row.Since, "since of %s", symbol)
	}
}

func TestEveryHookedFunctionOfADriverIsInTheTableForCuGetProcAddress(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(runtimeDir, "cuda", "zz_generated_table.c"))
	require.NoError(t, err)
	for _, row := range table(t).Of(hooks.CUDA).Hooked() {
		require.Contains(t, string(text), fmt.Sprintf("\t[HOOK_%s] = {\"%[1]s\", (void *)%[1]s},\n", row.Symbol))
	}
}

func TestWhatCudartResolvesIsKnownByItsBaseName(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, lines := range answers(t) {
		for _, line := range lines {
			known[line.name] = true
		}
	}
	for _, file := range []string{"symbols-cudart118-resolves.txt", "symbols-cudart124-resolves.txt"} {
		for _, name := range readList(t, filepath.Join(lists, file)) {
			require.True(t, known[name], "%s of %s", name, file)
		}
	}
}

func TestFunctionsThatAreKnownToMatterAreDeclared(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../cdi/abi/cuda.h")
	require.NoError(t, err)
	for _, symbol := range readList(t, filepath.Join(lists, "symbols-relevant-550.txt")) {
		require.Contains(t, string(text), " "+symbol+"(")
	}
}

func TestGeneratedFilesFitTheTable(t *testing.T) {
	t.Parallel()
	generated := hooks.Generate(table(t))
	for name, want := range generated {
		got, err := os.ReadFile(filepath.Join(runtimeDir, filepath.FromSlash(name)))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: make generate writes it anew", name)
	}
	files, err := filepath.Glob(filepath.Join(runtimeDir, "*", "zz_generated_*"))
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimPrefix(filepath.ToSlash(file), runtimeDir+"/")
		require.Contains(t, generated, name, "no longer generated")
	}
}
