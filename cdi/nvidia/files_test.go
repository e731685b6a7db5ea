// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/tests/golden"
)

const driverVersion = "550.54.15" // what the mock of NVML reports

func uuidOf(i int) string { return fmt.Sprintf("GPU-8f3c2a10-5b7e-4c21-9d0a-%012d", i) }

func cardOf(i int) card.Card {
	return card.Card{UUID: card.UUID(uuidOf(i)), Index: i, Minor: i, Vendor: card.VendorNVIDIA}
}

// library is a mock of NVML on a machine with eight A100, with stable UUIDs
// and the functions that nvcdi calls and the mock lacks.
func library() *server.Server {
	machine := dgxa100.New()
	for i := range machine.Devices {
		d := machine.Devices[i].(*server.Device)
		d.UUID = uuidOf(i)
		// A bus that no machine has: nvcdi looks for DRM nodes in the real sysfs.
		d.PciBusID = fmt.Sprintf("ffff:%02x:00.0", i)
		d.GetIndexFunc = func() (int, nvml.Return) { return i, nvml.SUCCESS }
		d.GetUUIDFunc = func() (string, nvml.Return) { return d.UUID, nvml.SUCCESS }
		d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
		d.IsMigDeviceHandleFunc = func() (bool, nvml.Return) { return false, nvml.SUCCESS }
	}
	return machine
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
	require.NoError(tr.t, os.WriteFile(file, []byte(name), 0o755))
}

// library is a file that says no more of itself than which processor it is for.
func (tr tree) library(name string, class elf.Class, machine elf.Machine) {
	tr.t.Helper()
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	var header any = elf.Header64{Ident: ident, Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64}
	if class == elf.ELFCLASS32 {
		header = elf.Header32{Ident: ident, Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 52}
	}
	var content bytes.Buffer
	require.NoError(tr.t, binary.Write(&content, binary.LittleEndian, header))
	tr.file(name)
	require.NoError(tr.t, os.WriteFile(filepath.Join(tr.root, name), content.Bytes(), 0o755))
}

// installed is a sharing runtime for this machine.
func installed(t *testing.T) cdi.Runtime {
	t.Helper()
	dir := tree{t, t.TempDir()}
	for _, name := range cdi.Substituted() {
		dir.library("runtime/"+name+".so.1", elf.ELFCLASS64, elf.EM_X86_64)
	}
	return cdi.Runtime{Dir: dir.root}
}

func (tr tree) driver(libraries string) {
	tr.t.Helper()
	for _, l := range []string{"libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so"} {
		tr.library(filepath.Join(libraries, l+"."+driverVersion), elf.ELFCLASS64, elf.EM_X86_64)
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
		err := unix.Mknod(filepath.Join(tr.root, "dev", n), unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(i))))
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

func requireGolden(t *testing.T, name string, edits *specs.ContainerEdits, replace ...string) {
	t.Helper()
	data, err := json.MarshalIndent(edits, "", "  ")
	require.NoError(t, err)
	got := strings.NewReplacer(replace...).Replace(string(data)) + "\n"
	golden.Equal(t, name, []byte(got))
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
			runtime := installed(t)
			common, err := files.Common(t.Context(), []card.Card{cardOf(1)}, runtime)
			require.NoError(t, err)
			device, err := files.Device(t.Context(), cardOf(1))
			require.NoError(t, err)

			replace := []string{runtime.Dir, "$RUNTIME"}
			if row.mounted {
				data, err := json.Marshal([]any{common, device})
				require.NoError(t, err)
				require.NotContains(t, string(data), host, "a path is left that only this process has")
			} else {
				replace = append(replace, host, "$HOST")
			}
			requireGolden(t, row.golden+"-common.json", common, replace...)
			requireGolden(t, row.golden+"-device.json", device, replace...)
		})
	}
}

func TestMissingFilesAreNamedAndHealed(t *testing.T) {
	t.Parallel()
	without := func(name string) []string {
		var rest []string
		for _, n := range allNodes {
			if n != name {
				rest = append(rest, n)
			}
		}
		return rest
	}
	for _, row := range []struct {
		name    string
		missing string
		says    []string
	}{
		{"the node of the card", "nvidia1", []string{"GPU-8f3c2a10-5b7e-4c21-9d0a-000000000001", "/run/nvidia/driver/dev/nvidia1", "nvidia-modprobe -c 1"}},
		{"the control node", "nvidiactl", []string{"/run/nvidia/driver/dev/nvidiactl", "load the driver"}},
		{"the node of unified memory", "nvidia-uvm", []string{"/run/nvidia/driver/dev/nvidia-uvm", "nvidia-modprobe -u"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			driver := tree{t, t.TempDir()}
			driver.driver("/usr/lib64")
			driver.nodes(without(row.missing)...)
			root := Root{Host: "/run/nvidia/driver", Here: driver.root}
			files := open(t, Options{Driver: root, Dev: root})
			ask := func() error {
				if row.missing == "nvidia1" {
					_, err := files.Device(t.Context(), cardOf(1))
					return err
				}
				_, err := files.Common(t.Context(), []card.Card{cardOf(1)}, installed(t))
				return err
			}
			err := ask()
			require.ErrorIs(t, err, ErrMissingNode)
			for _, s := range row.says {
				require.ErrorContains(t, err, s)
			}
			require.NotContains(t, err.Error(), driver.root, "the path is the one of the host")

			driver.nodes(row.missing)
			require.NoError(t, ask(), "nothing of the failure is remembered")
		})
	}
}

func TestAFileInTheNodesPlaceIsNotANode(t *testing.T) {
	t.Parallel()
	driver := tree{t, t.TempDir()}
	driver.driver("/usr/lib64")
	driver.nodes("nvidiactl", "nvidia-uvm")
	driver.file("/dev/nvidia1")
	_, err := open(t, Options{Driver: Root{Host: driver.root}}).Device(t.Context(), cardOf(1))
	require.ErrorIs(t, err, ErrMissingNode)
}

func TestOtherFaultsSayWhereToLook(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		prepare func(tree)
		ask     func(*testing.T, Files) error
		says    string
	}{
		{
			"a card that the driver does not list",
			func(tr tree) { tr.driver("/usr/lib64"); tr.nodes(allNodes...) },
			func(t *testing.T, f Files) error {
				_, err := f.Device(t.Context(), card.Card{UUID: "GPU-00000000-0000-0000-0000-000000000000"})
				return err
			},
			"nvidia-smi",
		},
		{
			"no driver below the root",
			func(tr tree) { tr.nodes(allNodes...) },
			func(t *testing.T, f Files) error {
				_, err := f.Common(t.Context(), []card.Card{cardOf(0)}, installed(t))
				return err
			},
			"install the driver",
		},
		{
			"a driver without libcuda",
			func(tr tree) {
				tr.driver("/usr/lib64")
				tr.nodes(allNodes...)
				require.NoError(tr.t, os.Remove(filepath.Join(tr.root, "usr/lib64/libcuda.so."+driverVersion)))
			},
			func(t *testing.T, f Files) error {
				_, err := f.Common(t.Context(), []card.Card{cardOf(0)}, installed(t))
				return err
			},
			"no libcuda.so",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			driver := tree{t, t.TempDir()}
			row.prepare(driver)
			files := open(t, Options{Driver: Root{Host: "/opt/driver", Here: driver.root}, Dev: Root{Host: "/opt/driver", Here: driver.root}})
			require.ErrorContains(t, row.ask(t, files), row.says)
		})
	}
}

func TestDeviceNodesAreLeftToTheRuntime(t *testing.T) {
	t.Parallel()
	driver := tree{t, t.TempDir()}
	driver.driver("/usr/lib64")
	driver.nodes(allNodes...)
	common, err := open(t, Options{Driver: Root{Host: driver.root}}).Common(t.Context(), nil, installed(t))
	require.NoError(t, err)
	for _, n := range common.DeviceNodes {
		require.Zero(t, n.Major, "%s: nvidia-uvm has another number after its module was loaded again", n.Path)
	}
}

func TestHooksThatGoAroundLimitsAreLeftOut(t *testing.T) {
	t.Parallel()
	driver := tree{t, t.TempDir()}
	driver.driver("/usr/lib64")
	driver.nodes(allNodes...)
	files := open(t, Options{Driver: Root{Host: driver.root}, HookPath: "/opt/tranche/nvidia-cdi-hook"})
	common, err := files.Common(t.Context(), nil, installed(t))
	require.NoError(t, err)
	device, err := files.Device(t.Context(), cardOf(0))
	require.NoError(t, err)
	var ran []string
	for _, h := range append(common.Hooks, device.Hooks...) {
		require.Equal(t, "/opt/tranche/nvidia-cdi-hook", h.Path)
		ran = append(ran, h.Args[1])
	}
	require.Equal(t, []string{"create-symlinks", "update-ldcache", "disable-device-node-modification", "update-application-profile"}, ran)
	for _, m := range common.Mounts {
		require.NotContains(t, m.ContainerPath, "nvidia-mps", "work given to the MPS daemon is done outside the share")
	}
}

func TestLibrariesWhereTheyWereSaidToBe(t *testing.T) {
	t.Parallel()
	driver := tree{t, t.TempDir()}
	driver.driver("/opt/odd/place")
	driver.nodes(allNodes...)
	_, err := open(t, Options{Driver: Root{Host: driver.root}}).Common(t.Context(), nil, installed(t))
	require.Error(t, err, "the place is not one that is searched")
	common, err := open(t, Options{Driver: Root{Host: driver.root}, LibraryDirs: []string{"/opt/odd/place"}}).Common(t.Context(), nil, installed(t))
	require.NoError(t, err)
	var paths []string
	for _, m := range common.Mounts {
		paths = append(paths, m.ContainerPath)
	}
	require.Contains(t, paths, "/opt/odd/place/libcuda.so."+driverVersion)
}

// mountedAt is what the container has at a path, empty for nothing.
func mountedAt(edits *specs.ContainerEdits, path string) string {
	for _, m := range edits.Mounts {
		if m.ContainerPath == path {
			return m.HostPath
		}
	}
	return ""
}

func TestTheRuntimeIsInTheDriversPlace(t *testing.T) {
	t.Parallel()
	driver := tree{t, filepath.Join(t.TempDir(), "run/nvidia/driver")}
	driver.driver("/usr/lib/x86_64-linux-gnu")
	driver.library("/usr/lib/i386-linux-gnu/libcuda.so."+driverVersion, elf.ELFCLASS32, elf.EM_386)
	driver.library("/usr/lib/i386-linux-gnu/libnvidia-ml.so."+driverVersion, elf.ELFCLASS32, elf.EM_386)
	driver.nodes(allNodes...)
	runtime := installed(t)
	for name, paths := range map[string][]string{"found by itself": nil, "where it was said to be": {"/usr/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := Root{Host: "/run/nvidia/driver", Here: driver.root}
			common, err := open(t, Options{Driver: root, Dev: root, LibraryDirs: paths}).Common(t.Context(), nil, runtime)
			require.NoError(t, err)
			for _, library := range cdi.Substituted() {
				file := "/usr/lib/x86_64-linux-gnu/" + library + ".so." + driverVersion
				require.Equal(t, runtime.Library(library), mountedAt(common, file))
				require.Equal(t, "/run/nvidia/driver"+file, mountedAt(common, "/run/tranche/driver/"+library+"-real.so.1"), "as the host knows it")
			}
			for _, m := range common.Mounts {
				require.NotContains(t, m.ContainerPath, "i386-linux-gnu/libcuda", "a libcuda that gives no share")
				require.NotContains(t, m.ContainerPath, "i386-linux-gnu/libnvidia-ml")
			}
			require.NotEmpty(t, mountedAt(common, "/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so."+driverVersion))
		})
	}
}

func TestNothingIsGivenWithoutTheRuntime(t *testing.T) {
	t.Parallel()
	arm := tree{t, t.TempDir()}
	arm.driver("/usr/lib64")
	arm.library("/usr/lib64/libcuda.so."+driverVersion, elf.ELFCLASS64, elf.EM_AARCH64)
	arm.nodes(allNodes...)
	_, err := open(t, Options{Driver: Root{Host: arm.root}}).Common(t.Context(), nil, installed(t))
	require.ErrorContains(t, err, "no libcuda.so for EM_X86_64, ELFCLASS64, but /usr/lib64/libcuda.so."+driverVersion)

	driver := tree{t, t.TempDir()}
	driver.driver("/usr/lib64")
	driver.nodes(allNodes...)
	_, err = open(t, Options{Driver: Root{Host: driver.root}}).Common(t.Context(), nil, cdi.Runtime{Dir: t.TempDir()})
	require.ErrorContains(t, err, "look at the sharing runtime")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestDeviceRootIsFoundAnewOnEachCall(t *testing.T) {
	t.Parallel()
	driver := tree{t, t.TempDir()}
	files := open(t, Options{Driver: Root{Host: "/run/nvidia/driver", Here: driver.root}})
	require.Equal(t, Root{Host: "/", Here: "/"}, files.dev())
	driver.nodes("nvidiactl")
	require.Equal(t, Root{Host: "/run/nvidia/driver", Here: driver.root}, files.dev())
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		options Options
		says    string
	}{
		{"a relative root", Options{Driver: Root{Host: "run/nvidia"}}, "not an absolute path"},
		{"a relative place in this process", Options{Driver: Root{Host: "/", Here: "driver-root"}}, "not an absolute path"},
		{"a root of the host that is this process's own root", Options{Driver: Root{Host: "/run/nvidia/driver", Here: "/"}}, "mount it"},
		{"a device root of the host that is this process's own root", Options{Dev: Root{Host: "/host", Here: "/"}}, "mount it"},
		{"a device root without a path on the host", Options{Dev: Root{Here: "/host"}}, "not an absolute path"},
		{"a hook that is looked up in PATH", Options{HookPath: "nvidia-cdi-hook"}, "not an absolute path"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(row.options)
			require.ErrorContains(t, err, row.says)
		})
	}
	files, err := New(Options{})
	require.NoError(t, err)
	require.Equal(t, Options{Driver: Root{Host: "/", Here: "/"}, HookPath: DefaultHookPath}, files.options)
}

// Without a library to share, nvcdi loads the one below the driver's root. Here
// that is no library at all, as with a driver that is half installed.
func TestALibraryThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	driver := tree{t, t.TempDir()}
	driver.driver("/usr/lib64")
	driver.nodes(allNodes...)
	files, err := New(Options{Driver: Root{Host: driver.root}})
	require.NoError(t, err)
	_, err = files.Device(t.Context(), cardOf(1))
	require.ErrorContains(t, err, "find device nodes of card "+uuidOf(1))
	require.ErrorContains(t, err, "NVML")
	_, err = files.Common(t.Context(), []card.Card{cardOf(1)}, installed(t))
	require.NoError(t, err, "the files are told by their names")
}
