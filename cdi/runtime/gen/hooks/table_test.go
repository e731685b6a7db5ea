// SPDX-License-Identifier: Apache-2.0

package hooks_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi/runtime/gen/hooks"
)

// rows joins columns by tabs, as people do not see them.
func rows(lines ...string) string {
	return strings.ReplaceAll(strings.Join(lines, "\n"), " | ", "\t") + "\n"
}

func TestWhatIsWrongInATableIsNamedWithItsLine(t *testing.T) {
	t.Parallel()
	const good = "cuA | cuda | allocate | cuA | 2000 | cuA | int x, void **y"
	for _, test := range []struct{ name, row, want string }{
		{"too few columns", "cuB | cuda | pass", "line 2: 3 columns"},
		{"too many columns", "cuB | cuda | pass | - | - | - | - | why | more", "line 2: 9 columns"},
		{"no symbol", "cu B | cuda | pass | - | - | - | -", `"cu B" is not a symbol`},
		{"an unknown library", "cuB | cudart | pass | - | - | - | -", `cuB: unknown library "cudart"`},
		{"an unknown class", "cuB | cuda | passed | - | - | - | -", `cuB: unknown class "passed"`},
		{"a base on a pass", "cuB | cuda | pass | cuB | 2000 | - | -", "base and since are for hooked functions of CUDA"},
		{"a base on NVML", "nvmlB | nvml | query | nvmlB | 2000 | nvmlB | int x", "base and since are for hooked functions of CUDA"},
		{"no base on a hook of CUDA", "cuB | cuda | query | - | - | cuB | int x", `base "-" since "-"`},
		{"a version that is none", "cuB | cuda | query | cuB | new | cuB | int x", `since "new"`},
		{"no parameters on a hook", "cuB | cuda | query | cuB | 2000 | cuB | -", "a hooked function needs its parameters"},
		{"a parameter without a name", "cuB | cuda | query | cuB | 2000 | cuB | int", `parameter "int"`},
		{"a handler on a pass", "cuB | cuda | pass | - | - | cuB | int x", `handler "cuB" on a pass`},
		{"no handler", "cuB | cuda | query | cuB | 2000 | - | int x", `handler "-"`},
		{"a hook that is only called", "cuB | cuda | query | cuB | 2000 | real | int x", `handler "real"`},
		{"an around of NVML", "nvmlB | nvml | query | - | - | around:x(x) | int x", "around is for functions of CUDA"},
		{"an around of a parameter that is not there", "cuB | cuda | query | cuB | 2000 | around:x(z) | int x", "no parameter is called z"},
		{"a symbol twice", good, "line 2: cuA is there already, in line 1"},
		{"one handler for different parameters", "cuB | cuda | query | cuB | 2000 | cuA | int x", "cuB and cuA have one handler and other parameters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := hooks.Read(strings.NewReader(rows(good, test.row)))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestARowIsRead(t *testing.T) {
	t.Parallel()
	table, err := hooks.Read(strings.NewReader(rows(
		"# a comment", "",
		"cuA_v2 | cuda | allocate | cuA | 3020 | around:memory(x, y) | int x, const void **y",
		"cuB | cuda | pass | - | - | real | void | tells, takes nothing",
		"nvmlC | nvml | query | - | - | nvmlC | nvmlDevice_t device",
	)))
	require.NoError(t, err)
	require.Equal(t, hooks.Table{
		{
			Symbol: "cuA_v2", Library: hooks.CUDA, Class: hooks.Allocate, Base: "cuA", Since: 3020, Around: "memory", AroundArgs: []string{"x", "y"},
			Parameters: []hooks.Parameter{{Type: "int ", Name: "x"}, {Type: "const void **", Name: "y"}}, Line: 3,
		},
		{Symbol: "cuB", Library: hooks.CUDA, Class: hooks.Pass, Real: true, Reason: "tells, takes nothing", Line: 4},
		{
			Symbol: "nvmlC", Library: hooks.NVML, Class: hooks.Query, Handler: "nvmlC",
			Parameters: []hooks.Parameter{{Type: "nvmlDevice_t ", Name: "device"}}, Line: 5,
		},
	}, table)
}

func TestSymbolsOfOneHandlerTellItWhichTheyAre(t *testing.T) {
	t.Parallel()
	table, err := hooks.Read(strings.NewReader(rows(
		"cuA | cuda | allocate | cuA | 2000 | cuA | int x",
		"cuA_ptsz | cuda | allocate | cuA | 7000 | cuA | int x",
		"cuB | cuda | free | cuB | 2000 | cuB | void",
		"cuC | cuda | free | cuC | 2000 | around:c(x, 2, ON_CARD) | int x, int y",
		"cuD | cuda | pass | - | - | - | -",
	)))
	require.NoError(t, err)
	files := hooks.Generate(table)
	wrappers, header := string(files["cuda/zz_generated_wrappers.c"]), string(files["cuda/zz_generated_hooks.h"])
	require.Contains(t, wrappers, "return hook_cuA(HOOK_cuA, x);")
	require.Contains(t, wrappers, "return hook_cuA(HOOK_cuA_ptsz, x);")
	require.Contains(t, wrappers, "EXPORTED CUresult cuB(void)\n{\n\tif (!cuda_has(HOOK_cuB))\n\t\treturn CUDA_ERROR_NOT_FOUND;\n\treturn hook_cuB();\n}\n")
	require.Contains(t, wrappers, "result = around_begin_c(&around, x, 2, ON_CARD);")
	require.Contains(t, wrappers, "result = real(x, y);\n\t\twhile (around_end_c(&around, &result));")
	require.Contains(t, header, "CUresult hook_cuA(enum cuda_hook hook, int x);\nCUresult hook_cuB(void);\n")
	require.NotContains(t, header, "hook_cuC")
	require.Contains(t, string(files["libcuda.map"]), "global:\n\tcuA;\n\tcuA_ptsz;\n\tcuB;\n\tcuC;\nlocal:\n\t*;\n")
}
