// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// Names of the driver's libraries that the sharing runtime takes the place of,
// without the ending that tells the version.
const (
	LibraryCUDA = "libcuda"
	LibraryNVML = "libnvidia-ml"
)

// Substituted lists the libraries that the sharing runtime takes the place of.
func Substituted() []string { return []string{LibraryCUDA, LibraryNVML} }

// Runtime is one version of the libraries that come with a release, as package
// libraries installs it: the sharing runtime and the simulated driver.
type Runtime struct {
	// Dir is an absolute path, the same on the host and for this process.
	Dir string
}

// Library is the sharing runtime's file that takes a library's place.
func (r Runtime) Library(name string) string { return filepath.Join(r.Dir, "runtime", name+".so.1") }

// Simulated is the simulated driver's file of a library.
func (r Runtime) Simulated(name string) string {
	return filepath.Join(r.Dir, "sim", name+"-real.so.1")
}

// Substitution is what becomes of the mounts of a driver's files.
type Substitution struct {
	// Driver are the driver's own files. The first of each library that is
	// substituted is where the sharing runtime finds it.
	Driver []*specs.Mount
	// Runtime are the sharing runtime's files, in the places of the driver's.
	Runtime []*specs.Mount
	// LeftOut are libraries that the sharing runtime cannot take the place of,
	// being for another kind of processor. They must not be mounted.
	LeftOut []*specs.Mount
}

// Substitute puts the sharing runtime in the place of the driver's libraries,
// everywhere that one is mounted. Fits says whether the runtime can take the
// place of a file. The arguments are not changed.
func (r Runtime) Substitute(mounts []*specs.Mount, fits func(*specs.Mount) bool) Substitution {
	var s Substitution
	moved := map[string]bool{}
	for _, m := range mounts {
		name, ok := substitutedBy(m)
		switch {
		case !ok:
			s.Driver = append(s.Driver, m)
			continue
		case !fits(m):
			s.LeftOut = append(s.LeftOut, m)
			continue
		case !moved[name]:
			moved[name] = true
			s.Driver = append(s.Driver, realMount(m.HostPath, name))
		}
		s.Runtime = append(s.Runtime, libraryMount(r.Library(name), m.ContainerPath))
	}
	return s
}

// Has tells whether the library is substituted anywhere.
func (s Substitution) Has(name string) bool {
	return slices.ContainsFunc(s.Runtime, func(m *specs.Mount) bool { n, _ := substitutedBy(m); return n == name })
}

// substitutedBy is the name of the library that a mount brings, where the
// sharing runtime takes its place: under any of the file names that a driver
// gives it, the one of the linker and those with versions.
func substitutedBy(m *specs.Mount) (name string, ok bool) {
	file := path.Base(m.ContainerPath)
	i := slices.IndexFunc(Substituted(), func(name string) bool {
		return file == name+".so" || strings.HasPrefix(file, name+".so.")
	})
	if i < 0 {
		return "", false
	}
	return Substituted()[i], true
}

// realMount mounts a driver's own file where the sharing runtime finds it.
func realMount(hostPath, name string) *specs.Mount {
	return libraryMount(hostPath, path.Join(ContainerDriverDir, name+"-real.so.1"))
}

func libraryMount(hostPath, containerPath string) *specs.Mount {
	return &specs.Mount{
		HostPath: hostPath, ContainerPath: containerPath,
		// Not noexec: libraries are mapped executable.
		Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"},
	}
}
