// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLibraryUnderADriverRoot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"nothing installed":           {nil, ""},
		"Debian's directories":        {[]string{"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"},
		"Red Hat's directories":       {[]string{"usr/lib64/libnvidia-ml.so.1"}, "usr/lib64/libnvidia-ml.so.1"},
		"GKE's directory":             {[]string{"lib64/libnvidia-ml.so.1"}, "lib64/libnvidia-ml.so.1"},
		"64 bit goes before the rest": {[]string{"usr/lib/libnvidia-ml.so.1", "usr/lib64/libnvidia-ml.so.1"}, "usr/lib64/libnvidia-ml.so.1"},
		"another version only":        {[]string{"usr/lib64/libnvidia-ml.so.580.65.06"}, ""},
		"a directory of that name":    {[]string{"usr/lib64/libnvidia-ml.so.1/x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for _, f := range tc.files {
				path := filepath.Join(root, f)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
				require.NoError(t, os.WriteFile(path, nil, 0o600))
			}
			want := tc.want
			if want != "" {
				want = filepath.Join(root, want)
			}
			require.Equal(t, want, libraryPath(root))
		})
	}
	require.Empty(t, libraryPath("/"), "the dynamic linker knows better")
	require.Empty(t, libraryPath(""))
}
