// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
)

var update = flag.Bool("update", false, "write the golden files anew")

const driverVersion = "550.54.15" // what the mock of NVML reports

func uuidOf(i int) string { return fmt.Sprintf("GPU-8f3c2a10-5b7e-4c21-9d0a-%012d", i) }

func cardOf(i int) card.Card {
	return card.Card{UUID: card.UUID(uuidOf(i)), Index: i, Minor: i, Vendor: card.VendorNVIDIA}
}

// library is a mock of NVML on a machine with eight A100, with stable UUIDs
// and the functions that nvcdi calls and the mock lacks.
func library() *dgxa100.Server {
	server := dgxa100.New()
	for i := range server.Devices {
		d := server.Devices[i].(*dgxa100.Device)
		d.UUID = uuidOf(i)
		// A bus that no machine has: nvcdi looks for DRM nodes in the real sysfs.
		d.PciBusID = fmt.Sprintf("ffff:%02x:00.0", i)
		d.GetIndexFunc = func() (int, nvml.Return) { return i, nvml.SUCCESS }
		d.GetUUIDFunc = func() (string, nvml.Return) { return d.UUID, nvml.SUCCESS }
		d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
		d.IsMigDeviceHandleFunc = func() (bool, nvml.Return) { return false, nvml.SUCCESS }
	}
	return server
}

// tree is an installed driver below root.
type tree struct {
	t    *testing.T
	root string
}

func (tr tree) file(name string) {
	tr.t.Helper()
	file := filepath.Join(tr.root, name)
	require.NoError(tr.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(tr.t, os.WriteFile(file, []byte(name), 0o755)) //nolint:gosec // programs are executable
}

func (tr tree) driver(libraries string) {
	tr.t.Helper()
	for _, l := range []string{"libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so"} {
		tr.file(filepath.Join(libraries, l+"."+driverVersion))
		require.NoError(tr.t, os.Symlink(l+"."+driverVersion, filepath.Join(tr.root, libraries, l+".1")))
	}
	tr.file("/usr/bin/nvidia-smi")
	tr.file("/lib/firmware/nvidia/" + driverVersion + "/gsp_tu10x.bin")
	tr.file("/run/nvidia-persistenced/socket")
	tr.file("/tmp/nvidia-mps/control")
}

func (tr tree) nodes(names ...string) {
	tr.t.Helper()
	require.NoError(tr.t, os.MkdirAll(filepath.Join(tr.root, "dev"), 0o755))
	for i, n := range names {
		err := unix.Mknod(filepath.Join(tr.root, "dev", n), unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(i)))) //nolint:gosec // small numbers
		if err == unix.EPERM {
			tr.t.Skip("making device nodes needs CAP_MKNOD: run the tests as root")
		}
		require.NoError(tr.t, err)
	}
}

var allNodes = []string{"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

func open(t *testing.T, o Options) Files {
	t.Helper()
	o.Toolkit = append(o.Toolkit, nvcdi.WithNvmlLib(library()))
	files, err := New(o)
	require.NoError(t, err)
	return files
}

func golden(t *testing.T, name string, edits *specs.ContainerEdits, replace ...string) {
	t.Helper()
	data, err := json.MarshalIndent(edits, "", "  ")
	require.NoError(t, err)
	got := strings.NewReplacer(replace...).Replace(string(data)) + "\n"
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// Each row is a place in which a driver is found on real nodes. The test's own
// directory stands for the host's root, or for the mount through which the
// process sees it.
func TestDriverFilesByPlace(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		// driver and libraries are paths on the host and below the driver.
		driver, libraries string
		// nodes is the path on the host of the root of the device nodes.
		nodes string
		// mounted is where the process sees the host's root.
		mounted bool
		golden  string
	}{
		{"a driver installed on the host, seen through a mount of the host", "/", "/usr/lib/x86_64-linux-gnu", "/", true, "host"},
		{"a driver that a container installed, with its own device nodes", "/run/nvidia/driver", "/usr/lib/x86_64-linux-gnu", "/run/nvidia/driver", true, "container"},
		{"a driver of GKE, whose nodes are the host's", "/home/kubernetes/bin/nvidia", "/lib64", "/", true, "gke"},
		{"a driver of Talos Linux below /usr/local", "/usr/local", "/glibc/usr/lib", "/", true, "talos"},
		{"a process on the host itself", "/run/nvidia/driver", "/usr/lib64", "/run/nvidia/driver", false, "here"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			host := t.TempDir()
			driver := tree{t, filepath.Join(host, row.driver)}
			driver.driver(row.libraries)
			tree{t, filepath.Join(host, row.nodes)}.nodes(allNodes...)

			options := Options{
				Driver: Root{Host: row.driver, Here: driver.root},
				Dev:    Root{Host: row.nodes, Here: filepath.Join(host, row.nodes)},
			}
			if !row.mounted {
				// The test's directory is then part of the host's paths.
				options = Options{Driver: Root{Host: driver.root}}
			}
			files := open(t, options)
			common, err := files.Common(t.Context(), []card.Card{cardOf(1)})
			require.NoError(t, err)
			device, err := files.Device(t.Context(), cardOf(1))
			require.NoError(t, err)

			var replace []string
			if row.mounted {
				data, err := json.Marshal([]any{common, device})
				require.NoError(t, err)
				require.NotContains(t, string(data), host, "a path is left that only this process has")
			} else {
				replace = []string{host, "$HOST"}
			}
			golden(t, row.golden+"-common.json", common, replace...)
			golden(t, row.golden+"-device.json", device, replace...)
		})
	}
}
