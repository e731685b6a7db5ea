// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"
)

// mounted are the mounts as "host -> container".
func mounted(mounts []*specs.Mount) []string {
	var out []string
	for _, m := range mounts {
		out = append(out, m.HostPath+" -> "+m.ContainerPath)
	}
	return out
}

func TestSubstitution(t *testing.T) {
	t.Parallel()
	const (
		cuda, cuda32 = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "/usr/lib/i386-linux-gnu/libcuda.so.550.54.15"
		nvml         = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15"
		front, real  = "/r/runtime/libcuda.so.1 -> ", " -> /run/tranche/driver/libcuda-real.so.1"
	)
	for _, row := range []struct {
		name                 string
		files                []string
		driver, runtime, out []string
	}{
		{"nothing", nil, nil, nil, nil},
		{
			"CUDA and NVML, and others that stay as they are",
			[]string{cuda, "/usr/lib/libnvidia-ptxjitcompiler.so.550.54.15", nvml, "/usr/bin/nvidia-smi"},
			[]string{
				cuda + real, "/usr/lib/libnvidia-ptxjitcompiler.so.550.54.15 -> /usr/lib/libnvidia-ptxjitcompiler.so.550.54.15",
				nvml + " -> /run/tranche/driver/libnvidia-ml-real.so.1", "/usr/bin/nvidia-smi -> /usr/bin/nvidia-smi",
			},
			[]string{front + cuda, "/r/runtime/libnvidia-ml.so.1 -> " + nvml},
			nil,
		},
		{
			"a library in two places: both are covered, the first is the real one",
			[]string{cuda, "/usr/lib64/libcuda.so.550.54.15"},
			[]string{cuda + real},
			[]string{front + cuda, front + "/usr/lib64/libcuda.so.550.54.15"},
			nil,
		},
		{
			"every name that a driver gives its file",
			[]string{"/a/libcuda.so", "/b/libcuda.so.1", "/c/libcuda.so.580.65.06"},
			[]string{"/a/libcuda.so" + real},
			[]string{front + "/a/libcuda.so", front + "/b/libcuda.so.1", front + "/c/libcuda.so.580.65.06"},
			nil,
		},
		{"a library for other processors is left out", []string{cuda32, cuda}, []string{cuda + real}, []string{front + cuda}, []string{cuda32 + " -> " + cuda32}},
		{
			"libraries whose names only begin alike",
			[]string{"/l/libcudadebugger.so.550.54.15", "/l/libcuda.something", "/l/libnvidia-ml-x.so.1"},
			[]string{"/l/libcudadebugger.so.550.54.15 -> /l/libcudadebugger.so.550.54.15", "/l/libcuda.something -> /l/libcuda.something", "/l/libnvidia-ml-x.so.1 -> /l/libnvidia-ml-x.so.1"},
			nil, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var mounts []*specs.Mount
			for _, file := range row.files {
				mounts = append(mounts, &specs.Mount{HostPath: file, ContainerPath: file, Options: []string{"ro"}})
			}
			got := Runtime{Dir: "/r"}.Substitute(mounts, func(m *specs.Mount) bool { return !strings.Contains(m.HostPath, "i386") })
			require.Equal(t, row.driver, mounted(got.Driver))
			require.Equal(t, row.runtime, mounted(got.Runtime))
			require.Equal(t, row.out, mounted(got.LeftOut))
			require.Equal(t, len(row.runtime) > 0, got.Has(LibraryCUDA))
			for _, m := range got.Runtime {
				require.Equal(t, []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}, m.Options, "nobody in the container changes it, and the linker may map it")
			}
		})
	}
}

func TestPlacesInARuntime(t *testing.T) {
	t.Parallel()
	r := Runtime{Dir: "/var/lib/tranche/runtime/x"}
	require.Equal(t, []string{"libcuda", "libnvidia-ml"}, Substituted())
	require.Equal(t, "/var/lib/tranche/runtime/x/runtime/libnvidia-ml.so.1", r.Library(LibraryNVML))
	require.Equal(t, "/var/lib/tranche/runtime/x/sim/libcuda-real.so.1", r.Simulated(LibraryCUDA))
}
