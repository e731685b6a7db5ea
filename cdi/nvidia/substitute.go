// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/cdi"
)

// substitute puts the sharing runtime in the place of the driver's libraries.
// Their mounts have the paths that this process sees. A driver whose libcuda
// cannot be substituted at all is an error: its containers would have nothing
// that gives them their share.
func substitute(ctx context.Context, mounts []*specs.Mount, runtime cdi.Runtime) (cdi.Substitution, error) {
	own, err := kindOf(runtime.Library(cdi.LibraryCUDA))
	if err != nil {
		return cdi.Substitution{}, fmt.Errorf("look at the sharing runtime: %w", err)
	}
	s := runtime.Substitute(mounts, func(m *specs.Mount) bool {
		k, err := kindOf(m.HostPath)
		return err == nil && k == own
	})
	for _, m := range s.LeftOut {
		klog.FromContext(ctx).V(2).Info("Left a library of the driver out: the sharing runtime is for another kind of processor", "path", m.HostPath, "runtime", own)
	}
	switch {
	case s.Has(cdi.LibraryCUDA):
		return s, nil
	case len(s.LeftOut) > 0:
		return s, fmt.Errorf("no libcuda.so for %s, but %s: install the driver for this machine, or say with --driver-root where it is", own, s.LeftOut[0].ContainerPath)
	default:
		return s, errors.New("no libcuda.so: install the driver, or say with --driver-root where it is")
	}
}

// kind is what a library must have in common with a program that loads it.
type kind struct {
	machine elf.Machine
	class   elf.Class
}

// String is for people: "EM_X86_64, ELFCLASS64".
func (k kind) String() string { return fmt.Sprintf("%s, %s", k.machine, k.class) }

func kindOf(file string) (kind, error) {
	f, err := elf.Open(file)
	if err != nil {
		return kind{}, fmt.Errorf("read %s: %w", file, err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	return kind{f.Machine, f.Class}, nil
}
