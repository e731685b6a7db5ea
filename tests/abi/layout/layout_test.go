// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/abi/layout"
)

func TestNVMLIsDeclaredAsGoNVMLHasIt(t *testing.T) {
	t.Parallel()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	require.NoError(t, err)
	result, err := layout.Comparison{
		Dir: "../../../cdi/abi", Header: "nvml.h", Includes: []string{"nvml_types.h"},
		Other: filepath.Join(strings.TrimSpace(string(dir)), "pkg/nvml/nvml.h"),
		Flags: []string{"-DNVML_NO_UNVERSIONED_FUNC_DEFS"},
		Work:  t.TempDir(),
		// go-nvml has made structures of its handles, which changes prototypes, not layouts.
	}.Run(t.Context())
	require.NoError(t, err)
	require.Greater(t, result.Facts, 700)
}

const theirs = `typedef enum color_enum { RED = 1, BLUE = 2 } color;
typedef struct point_st { int x; struct { char c; long d; } in; union { int u; long v; }; short tail[4]; } point;
typedef int handle;
int paint(point *p, color c);
`

func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, old, new, want string }{
		{"the same is the same", "", "", ""},
		{"another value of a constant", "BLUE = 2", "BLUE = 3", "(long long)BLUE is 3ll with us"},
		{"a field that moved", "int x;", "int y, x;", "offsetof(point, x) is 4ll"},
		{"a field of another size", "short tail", "int tail", "->tail) is 16ll"},
		{"a nested field of another size", "char c;", "int c;", "->in.c) is 4ll"},
		{"another size of the whole", "short tail[4];", "short tail[4]; long more;", "sizeof(point) is 48ll"},
		{"an alias of something else", "typedef int handle", "typedef long handle", "sizeof(handle) is 8ll"},
		{"another parameter", "color c)", "int c)", "paint is int (*)(point *p, int c) with us"},
		{"something that they do not have", "BLUE = 2", "BLUE = 2, GREEN = 3", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "theirs.h"), []byte(theirs), 0o600))
			ours := strings.Replace(theirs, test.old, test.new, 1)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "ours.h"), []byte(ours), 0o600))
			result, err := layout.Comparison{
				Dir: dir, Header: "ours.h", Other: filepath.Join(dir, "theirs.h"), Work: t.TempDir(), Prototypes: true,
			}.Run(t.Context())
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, layout.Result{Facts: 19, Prototypes: 1}, result)
		})
	}
}
