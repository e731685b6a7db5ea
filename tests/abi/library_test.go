// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi/runtime/gen/hooks"
)

const root = "../.."

// build makes the runtime's libraries, once.
var build = sync.OnceValue(func() error {
	output, err := exec.Command("make", "-C", root, "--no-print-directory", "-s", "FLAVOUR=release", "native-runtime").CombinedOutput()
	if err != nil {
		return fmt.Errorf("make native-runtime: %w\n%s", err, output)
	}
	return nil
})

type substitute struct {
	library hooks.Library
	file    string
	real    string
}

var substitutes = []substitute{
	{hooks.CUDA, "libcuda.so.1", "libcuda-real.so.1"},
	{hooks.NVML, "libnvidia-ml.so.1", "libnvidia-ml-real.so.1"},
}

// eachLibrary runs a check on both libraries.
func eachLibrary(t *testing.T, check func(t *testing.T, library substitute, file *elf.File)) {
	t.Helper()
	require.NoError(t, build())
	for _, library := range substitutes {
		t.Run(library.file, func(t *testing.T) {
			t.Parallel()
			file, err := elf.Open(filepath.Join(root, "build/native/release/runtime", library.file))
			require.NoError(t, err)
			t.Cleanup(func() { _ = file.Close() })
			check(t, library, file)
		})
	}
}

func TestLibrariesExportWhatTheTableHooksAndNothingElse(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, library substitute, file *elf.File) {
		var want []string
		for _, row := range table(t).Of(library.library).Hooked() {
			want = append(want, row.Symbol)
		}
		require.NotContains(t, want, "dlsym")
		symbols, err := file.DynamicSymbols()
		require.NoError(t, err)
		var got []string
		for _, symbol := range symbols {
			if symbol.Section != elf.SHN_UNDEF {
				got = append(got, symbol.Name)
				require.Empty(t, symbol.Version, "%s has a version, and the driver's names have none", symbol.Name)
			}
		}
		require.ElementsMatch(t, want, got)
	})
}

func TestLibrariesAreNamedAndFoundAsTheContainerHasThem(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, library substitute, file *elf.File) {
		for tag, want := range map[elf.DynTag]string{elf.DT_SONAME: library.file, elf.DT_RUNPATH: "/run/tranche/driver"} {
			got, err := file.DynString(tag)
			require.NoError(t, err)
			require.Equal(t, []string{want}, got, tag)
		}
		rpath, err := file.DynString(elf.DT_RPATH)
		require.NoError(t, err)
		require.Empty(t, rpath)
		needed, err := file.DynString(elf.DT_NEEDED)
		require.NoError(t, err)
		require.Equal(t, library.real, needed[0], "what is not hooked is looked for there first")
		for _, name := range needed[1:] {
			require.Contains(t, []string{"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}, name)
		}
	})
}

// newest is the glibc that the libraries may need: CentOS 7's.
const newest = 17

func TestLibrariesNeedNoGlibcNewerThan217(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, _ substitute, file *elf.File) {
		imports, err := file.ImportedSymbols()
		require.NoError(t, err)
		for _, symbol := range imports {
			if symbol.Version == "" {
				continue
			}
			require.NotContains(t, symbol.Version, "GLIBC_PRIVATE", symbol.Name)
			version, ok := strings.CutPrefix(symbol.Version, "GLIBC_2.")
			require.True(t, ok, "%s@%s", symbol.Name, symbol.Version)
			minor, err := strconv.Atoi(strings.Split(version, ".")[0])
			require.NoError(t, err)
			require.LessOrEqual(t, minor, newest, "%s@%s: use something older, or add it to the stubs in cdi/native.mk", symbol.Name, symbol.Version)
		}
	})
}

func TestLibrariesLeaveNoSymbolToWhoeverHasIt(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, _ substitute, file *elf.File) {
		imports, err := file.ImportedSymbols()
		require.NoError(t, err)
		for _, symbol := range imports {
			require.NotEmpty(t, symbol.Version, "%s is of no version of glibc", symbol.Name)
			require.False(t, strings.HasPrefix(symbol.Name, "cu") || strings.HasPrefix(symbol.Name, "nvml"), symbol.Name)
		}
	})
}

func TestNothingRunsWhenTheLibrariesAreLoadedOrUnloaded(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, _ substitute, file *elf.File) {
		for _, tag := range []elf.DynTag{elf.DT_INIT, elf.DT_FINI, elf.DT_INIT_ARRAY, elf.DT_FINI_ARRAY, elf.DT_PREINIT_ARRAY} {
			values, err := file.DynValue(tag)
			require.NoError(t, err)
			require.Empty(t, values, tag)
		}
		require.False(t, slices.ContainsFunc(file.Sections, func(s *elf.Section) bool { return s.Name == ".ctors" }))
	})
}

func TestLibrariesAskForNothingThatLoadersOfOldRefuse(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, _ substitute, file *elf.File) {
		for _, prog := range file.Progs {
			if prog.Type == elf.PT_GNU_STACK {
				require.Zero(t, prog.Flags&elf.PF_X, "an executable stack")
			}
		}
		for _, section := range file.Sections {
			require.NotEqual(t, ".relr.dyn", section.Name, "relative relocations of glibc 2.36")
		}
		symbolic, err := file.DynValue(elf.DT_FLAGS)
		require.NoError(t, err)
		require.Len(t, symbolic, 1)
		require.NotZero(t, elf.DynFlag(symbolic[0])&elf.DF_SYMBOLIC, "calls among our own functions could be intercepted")
		require.Zero(t, elf.DynFlag(symbolic[0])&(elf.DF_TEXTREL|elf.DF_STATIC_TLS))
	})
}
