// SPDX-License-Identifier: Apache-2.0

package real

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi/runtime/gen/hooks"
	"github.com/tranche-dra/tranche/tests/abi/layout"
)

const (
	root  = "../../.."
	lists = "../../testdata/cuda"
	// Set by make: the directory of the built libraries. The tests are skipped without.
	libraries = "TRANCHE_ABI_REAL"
)

// The releases of Debian that have a driver, and the libcudart that is as old.
var releases = []struct {
	suite, cudart, resolves string
}{
	{"bookworm", "libcudart11.0", "symbols-cudart118-resolves.txt"},
	{"trixie", "libcudart12", "symbols-cudart124-resolves.txt"},
}

// fetching is held by who has apt at work.
var fetching sync.Mutex

// fetch returns the directory of a package's files, or skips the test.
func fetch(t *testing.T, name, suite string, patterns ...string) string {
	t.Helper()
	if os.Getenv(libraries) == "" {
		t.Skip("compares with NVIDIA's own files, which it downloads: make test-abi-real")
	}
	var suites []string
	for _, release := range releases {
		suites = append(suites, release.suite)
	}
	fetching.Lock()
	defer fetching.Unlock()
	debian, err := newDebian(t.Context(), suites...)
	var dir string
	if err == nil {
		dir, err = debian.extract(t.Context(), name, suite, patterns...)
	}
	if errors.Is(err, errUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return dir
}

// find returns the one file below dir of that name.
func find(t *testing.T, dir, pattern string) string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if ok, _ := filepath.Match(pattern, entry.Name()); ok && entry.Type().IsRegular() {
			found = append(found, path)
		}
		return err
	}))
	require.Len(t, found, 1, "%s below %s", pattern, dir)
	return found[0]
}

// stage is a directory in which the loader finds the real library under the name that
// the substitute needs.
type stage struct {
	dir        string
	substitute string
	real       string // as the loader knows it
}

func newStage(t *testing.T, name, real string) stage {
	t.Helper()
	built, err := filepath.Abs(filepath.Join(os.Getenv(libraries), name+".so.1"))
	require.NoError(t, err)
	require.FileExists(t, built)
	s := stage{dir: t.TempDir(), substitute: built}
	s.real = filepath.Join(s.dir, name+"-real.so.1")
	require.NoError(t, os.Symlink(real, s.real))
	return s
}

func (s stage) run(t *testing.T, environment []string, input string, program ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program[0], program[1:]...)
	command.Env = append([]string{"LD_LIBRARY_PATH=" + s.dir}, environment...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	return string(output), err
}

// compile builds a program or a library of testdata.
func compile(t *testing.T, source, output string, flags ...string) {
	t.Helper()
	arguments := append([]string{"-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", output, filepath.Join("testdata", source)}, flags...)
	text, err := exec.CommandContext(t.Context(), "cc", append(arguments, "-ldl")...).CombinedOutput()
	require.NoError(t, err, string(text))
}

func exports(t *testing.T, library string) []string {
	t.Helper()
	file, err := elf.Open(library)
	require.NoError(t, err)
	defer file.Close() //nolint:errcheck // only read
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	var names []string
	for _, symbol := range symbols {
		if symbol.Section != elf.SHN_UNDEF && symbol.Section != elf.SHN_ABS {
			names = append(names, symbol.Name)
		}
	}
	require.Greater(t, len(names), 100)
	return names
}

func table(t *testing.T) hooks.Table {
	t.Helper()
	table, err := hooks.Load(filepath.Join(root, "cdi/runtime", hooks.File))
	require.NoError(t, err)
	return table
}

// question is the input of the probe: the symbols of the library, hooked or
// not, and the names that cuGetProcAddress is asked for.
func question(t *testing.T, library hooks.Library, names []string) string {
	t.Helper()
	table := table(t)
	var b strings.Builder
	bases := map[string]bool{"noSuchFunction": true}
	for _, name := range names {
		row, ok := table.Lookup(name)
		require.True(t, ok, "the driver exports %s, and hooks.tsv does not have it", name)
		if !row.Hooked() {
			fmt.Fprintln(&b, "passed", name)
		}
		bases[name] = true
		bases[version.ReplaceAllString(name, "")] = true
	}
	for _, row := range table.Of(library).Hooked() {
		fmt.Fprintln(&b, "hooked", row.Symbol)
		bases[row.Base] = true
	}
	if library == hooks.CUDA {
		for base := range bases {
			fmt.Fprintln(&b, "base", base)
		}
	}
	return b.String()
}

var version = regexp.MustCompile(`(_v\d+)?(_pt[sd][sz])?$`)

func TestEveryAnswerOfTheDriverIsOursOrTheDrivers(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		for _, library := range []struct {
			kind                hooks.Library
			name, packaged, own string
		}{
			{hooks.CUDA, "libcuda", "libcuda1", "libcuda.so.*.*"},
			{hooks.NVML, "libnvidia-ml", "libnvidia-ml1", "libnvidia-ml.so.*.*"},
		} {
			t.Run(release.suite+" "+library.name, func(t *testing.T) {
				t.Parallel()
				real := find(t, fetch(t, library.packaged, release.suite, "*/"+library.own), library.own)
				stage := newStage(t, library.name, real)
				probe := filepath.Join(stage.dir, "probe")
				compile(t, "probe.c", probe)
				output, err := stage.run(t, nil, question(t, library.kind, exports(t, real)), probe, stage.substitute, stage.real)
				require.NoError(t, err, output)
				t.Log(filepath.Base(real), output)
			})
		}
	}
}

func TestWhatCudartResolvesIsOursOrTheDrivers(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release.cudart, func(t *testing.T) {
			t.Parallel()
			driver := find(t, fetch(t, "libcuda1", release.suite, "*/libcuda.so.*.*"), "libcuda.so.*.*")
			cudart := find(t, fetch(t, release.cudart, release.suite, "*/libcudart.so.*.*"), "libcudart.so.*.*")
			stage := newStage(t, "libcuda", driver)
			count, record := filepath.Join(stage.dir, "count"), filepath.Join(stage.dir, "record")
			compile(t, "count.c", count)
			// What is linked with a library that has a path for a name looks for it there.
			path := filepath.Join(stage.dir, "path.so")
			stub := exec.CommandContext(t.Context(), "cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,-soname,"+stage.substitute, "-o", path)
			require.NoError(t, stub.Run())
			compile(t, "recorder.c", filepath.Join(stage.dir, "libcuda.so.1"), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,--no-as-needed", path)
			output, err := stage.run(t, []string{"RECORD=" + record, "SUBSTITUTE=" + stage.substitute}, "", count, cudart)
			require.NoError(t, err, output)
			text, err := os.ReadFile(record)
			require.NoError(t, err, output)
			checkRecord(t, string(text), stage, release.resolves)
		})
	}
}

// checkRecord looks at the lines of the recorder.
func checkRecord(t *testing.T, text string, stage stage, resolves string) {
	t.Helper()
	table := table(t)
	asked := map[string]bool{}
	ours, theirs := 0, 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		require.Len(t, fields, 5, line)
		asked[fields[0]] = true
		row, ok := table.Lookup(fields[4])
		require.True(t, ok, "%s is not in hooks.tsv: %s", fields[4], line)
		if row.Hooked() {
			ours++
			require.Equal(t, stage.substitute, fields[3], line)
		} else {
			theirs++
			require.Equal(t, stage.real, fields[3], line)
		}
	}
	want, err := os.ReadFile(filepath.Join(lists, resolves))
	require.NoError(t, err)
	for name := range strings.FieldsSeq(string(want)) {
		require.True(t, asked[name], "libcudart did not ask for %s", name)
	}
	require.Greater(t, ours, 50)
	t.Logf("of %d functions that libcudart asked for, %d are ours", ours+theirs, ours)
}

// The header in Debian is older than what cdi/abi declares.
var newer = map[string]string{
	"(long long)offsetof(CUmemPoolProps_v1, usage)":         "since 12.6",
	"(long long)sizeof(((CUmemPoolProps_v1 *)0)->usage)":    "since 12.6",
	"(long long)offsetof(CUmemPoolProps_v1, reserved)":      "since 12.6",
	"(long long)sizeof(((CUmemPoolProps_v1 *)0)->reserved)": "since 12.6",
}

func TestCUDAIsDeclaredAsNVIDIAHasIt(t *testing.T) {
	t.Parallel()
	// 930 MB for a header of 1 MB: no smaller package has it.
	dir := fetch(t, "nvidia-cuda-dev", "trixie", "./usr/include/cuda.h")
	result, err := layout.Comparison{
		Dir: filepath.Join(root, "cdi/abi"), Header: "cuda.h", Includes: []string{"cuda_types.h", "cuda_consts.h"},
		Other: find(t, dir, "cuda.h"),
		// Each version of a function under its own name.
		Flags: []string{"-D__CUDA_API_VERSION_INTERNAL"}, Prototypes: true, Except: newer, Work: t.TempDir(),
	}.Run(t.Context())
	require.NoError(t, err)
	require.Greater(t, result.Facts, 1800)
	require.Greater(t, result.Prototypes, 450)
	t.Logf("%d facts and %d prototypes", result.Facts, result.Prototypes)
}
