// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
)

// DefaultHookPath is where NVIDIA's packages put the program that makes links
// and the linker cache in a container before it starts.
const DefaultHookPath = "/usr/bin/nvidia-cdi-hook"

// Options say where the driver is. The zero value is a driver installed on the
// host itself, for a process that runs there.
type Options struct {
	// Driver is the root of the driver's libraries and programs. Zero is "/".
	Driver Root
	// Dev is the root above the "dev" directory that has the device nodes.
	// Zero is the driver's root if that has them at the time of the call, else
	// "/". A process in a container that does not see the host's /dev at /dev
	// has to set it.
	Dev Root
	// HookPath is nvidia-cdi-hook on the host. Empty is DefaultHookPath.
	HookPath string
	// LibraryDirs are the directories, below the driver's root, that have the
	// libraries, for installations where nvcdi does not find them by itself.
	LibraryDirs []string
	// Toolkit are further options for nvcdi. nvcdi.WithNvmlLib shares a
	// library that is loaded already, which saves its start on every call.
	Toolkit []nvcdi.Option
}

// Files is the source of driver files for NVIDIA cards.
type Files struct{ options Options }

var _ cdi.DriverFiles = Files{}

// New checks the options. It does not look at the node.
func New(o Options) (Files, error) {
	var err error
	if o.Driver.Host == "" {
		o.Driver.Host = "/"
	}
	if o.Driver, err = o.Driver.complete(); err != nil {
		return Files{}, fmt.Errorf("configure NVIDIA driver files: %w", err)
	}
	if o.Dev != (Root{}) {
		if o.Dev, err = o.Dev.complete(); err != nil {
			return Files{}, fmt.Errorf("configure NVIDIA device nodes: %w", err)
		}
	}
	if o.HookPath == "" {
		o.HookPath = DefaultHookPath
	}
	if !filepath.IsAbs(o.HookPath) {
		return Files{}, fmt.Errorf("configure NVIDIA driver files: hook %q is not an absolute path on the host", o.HookPath)
	}
	o.LibraryDirs, o.Toolkit = slices.Clone(o.LibraryDirs), slices.Clone(o.Toolkit)
	return Files{options: o}, nil
}

// cardNode is the device node of a whole card.
var cardNode = regexp.MustCompile(`^/dev/nvidia[0-9]+$`)

// Device is the device node of a card and what belongs to it. Without the node
// it is an ErrMissingNode that names it as the host knows it.
func (f Files) Device(ctx context.Context, c card.Card) (*specs.ContainerEdits, error) {
	dev := f.dev()
	toolkit, err := f.toolkit(ctx, dev)
	if err != nil {
		return nil, fmt.Errorf("find device nodes of card %s: %w", c.UUID, err)
	}
	devices, err := toolkit.GetDeviceSpecsByID(string(c.UUID))
	if err == nil && len(devices) != 1 {
		err = fmt.Errorf("the driver lists %d cards of that UUID", len(devices))
	}
	if err != nil {
		return nil, fmt.Errorf("find device nodes of card %s: %w: see what nvidia-smi says on the node", c.UUID, err)
	}
	edits := &devices[0].ContainerEdits
	if !slices.ContainsFunc(edits.DeviceNodes, func(n *specs.DeviceNode) bool { return cardNode.MatchString(n.Path) }) {
		name := fmt.Sprintf("nvidia%d", c.Minor)
		return nil, fmt.Errorf("find device nodes of card %s: %w", c.UUID, missingNode(path.Join(dev.Host, "dev", name),
			fmt.Sprintf("load the driver on the node (nvidia-modprobe -c %d), or say with --driver-root where it is", c.Minor)))
	}
	return f.finish(edits, dev)
}

// Common is the driver's libraries and programs, its control nodes, and the
// hooks that make a container find them, with the sharing runtime in the place
// of the libraries that it substitutes.
func (f Files) Common(ctx context.Context, _ []card.Card, runtime cdi.Runtime) (*specs.ContainerEdits, error) {
	dev := f.dev()
	toolkit, err := f.toolkit(ctx, dev)
	if err != nil {
		return nil, fmt.Errorf("find NVIDIA driver files: %w", err)
	}
	common, err := toolkit.GetCommonEdits()
	if err != nil {
		return nil, fmt.Errorf("find NVIDIA driver files below %s: %w: "+
			"install the driver, or say with --driver-root where it is", f.options.Driver.Host, err)
	}
	edits := common.ContainerEdits
	for _, n := range []struct{ name, remedy string }{
		{"nvidiactl", "load the driver on the node (nvidia-modprobe), or say with --driver-root where it is"},
		{"nvidia-uvm", "load the module nvidia-uvm on the node (nvidia-modprobe -u -c 0), or say with --driver-root where the driver is"},
	} {
		if !slices.ContainsFunc(edits.DeviceNodes, func(d *specs.DeviceNode) bool { return d.Path == path.Join("/dev", n.name) }) {
			return nil, fmt.Errorf("find NVIDIA driver files: %w", missingNode(path.Join(dev.Host, "dev", n.name), n.remedy))
		}
	}
	substitution, err := substitute(ctx, edits.Mounts, runtime)
	if err != nil {
		return nil, fmt.Errorf("find NVIDIA driver files below %s: %w", f.options.Driver.Host, err)
	}
	edits.Mounts = substitution.Driver
	finished, err := f.finish(edits, dev)
	if err != nil {
		return nil, err
	}
	// Its paths are those of the host already.
	finished.Mounts = append(finished.Mounts, substitution.Runtime...)
	return finished, nil
}

// dev is where the device nodes are at present.
func (f Files) dev() Root {
	if f.options.Dev != (Root{}) {
		return f.options.Dev
	}
	return devRoot(f.options.Driver)
}

// toolkit is nvcdi for the driver as it is now.
func (f Files) toolkit(ctx context.Context, dev Root) (nvcdi.Interface, error) {
	options := []nvcdi.Option{
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithLogger(detail{klog.FromContext(ctx)}),
		nvcdi.WithDriverRoot(f.options.Driver.Here),
		nvcdi.WithDevRoot(dev.Here),
		nvcdi.WithNVIDIACDIHookPath(f.options.HookPath),
		nvcdi.WithLibrarySearchPaths(f.libraryDirs()),
		// Only hooks that are known to leave the limits alone: not
		// enable-cuda-compat, which puts the image's own libcuda before the
		// one that is mounted, and not apply-cuda-memory-limits, which takes
		// a limit from the container's own environment.
		nvcdi.WithDisabledHooks(nvcdi.AllHooks),
		nvcdi.WithEnabledHooks("create-symlinks", "update-ldcache", "disable-device-node-modification", "update-application-profile"),
		nvcdi.WithFeatureFlags(
			// A library of the driver that would be loaded into this process.
			nvcdi.FeatureDisableNvsandboxUtils,
			// Sockets of daemons: a container that uses the host's MPS daemon
			// would have its work done by a process outside its share, and a
			// daemon that was restarted would keep the container from ever
			// starting again, as its socket is another file then.
			nvcdi.FeatureDisableIPCDiscoverer,
		),
	}
	return nvcdi.New(append(options, f.options.Toolkit...)...)
}

// Where installations put libraries that nvcdi does not search, below the
// driver's root: Talos Linux before 1.13 with "/" or "/usr/local" as the root.
var unusualLibraryDirs = []string{
	"/glibc/usr/lib", "/glibc/lib", "/usr/local/glibc/usr/lib", "/usr/local/glibc/lib",
}

func (f Files) libraryDirs() []string {
	here := f.options.Driver.Here
	if len(f.options.LibraryDirs) > 0 {
		dirs := make([]string, 0, len(f.options.LibraryDirs))
		for _, d := range f.options.LibraryDirs {
			dirs = append(dirs, filepath.Join(here, d))
		}
		return dirs
	}
	for _, d := range unusualLibraryDirs {
		dir := filepath.Join(here, d)
		if found, err := filepath.Glob(filepath.Join(dir, "libcuda.so.*")); err == nil && len(found) > 0 {
			return []string{dir}
		}
	}
	return nil
}

// finish turns what nvcdi found into edits that hold on the host.
func (f Files) finish(edits *specs.ContainerEdits, dev Root) (*specs.ContainerEdits, error) {
	spec := &specs.Spec{ContainerEdits: *edits}
	if err := toHost(f.options.Driver, dev).Transform(spec); err != nil {
		return nil, fmt.Errorf("turn paths of driver files into paths of the host: %w", err)
	}
	for _, n := range spec.ContainerEdits.DeviceNodes {
		// Left to the container runtime, which looks at the node when a
		// container starts: nvidia-uvm has another major number each time its
		// module is loaded, and a spec outlives that.
		n.Major, n.Minor, n.FileMode = 0, 0, nil
		if n.HostPath == n.Path {
			n.HostPath = ""
		}
	}
	return &spec.ContainerEdits, nil
}
