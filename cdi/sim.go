// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"fmt"
	"path"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
)

// ContainerCardsDir holds the simulated cards of a container, each a directory
// that is named by its UUID (simdriver/simcard.h).
const ContainerCardsDir = ContainerRoot + "/cards"

// simulatedLibraryDirs are where containers look for libraries without being
// told: on Debian and its kin, and on others. Simulated cards have no hook that
// makes the linker's cache.
func simulatedLibraryDirs() []string { return []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64"} }

// SimulatedDriver is the source of driver files for simulated cards. They have
// no device nodes: a card is a directory of files, which all containers that
// have the card write to, as they would to a device.
type SimulatedDriver struct {
	dir    string
	create func(dir string, c card.Card) (path string, err error)
}

var _ DriverFiles = SimulatedDriver{}

// NewSimulatedDriver keeps the cards in dir, an absolute path on the host. Create
// makes a card below it where it is missing, changes nothing of one that is
// there, and returns the card's own directory.
func NewSimulatedDriver(dir string, create func(dir string, c card.Card) (path string, err error)) SimulatedDriver {
	return SimulatedDriver{dir: dir, create: create}
}

// Device makes the card where it is missing, and mounts it. A card that CUDA
// does not know of, such as another vendor's, has nothing to mount.
func (s SimulatedDriver) Device(_ context.Context, c card.Card) (*specs.ContainerEdits, error) {
	if c.Vendor != card.VendorNVIDIA || c.Memory == 0 {
		return nil, nil //nolint:nilnil // nil edits are an answer, see DriverFiles
	}
	dir, err := s.create(s.dir, c)
	if err != nil {
		return nil, fmt.Errorf("make simulated card %s: %w", c.UUID, err)
	}
	return &specs.ContainerEdits{Mounts: []*specs.Mount{{
		HostPath: dir, ContainerPath: path.Join(ContainerCardsDir, string(c.UUID)),
		Options: []string{"rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
	}}}, nil
}

// Common mounts the simulated driver's libraries, and the sharing runtime in
// their usual places.
func (s SimulatedDriver) Common(_ context.Context, _ []card.Card, runtime Runtime) (*specs.ContainerEdits, error) {
	edits := &specs.ContainerEdits{}
	for _, name := range Substituted() {
		edits.Mounts = append(edits.Mounts, realMount(runtime.Simulated(name), name))
		for _, dir := range simulatedLibraryDirs() {
			edits.Mounts = append(edits.Mounts, libraryMount(runtime.Library(name), path.Join(dir, name+".so.1")))
		}
	}
	return edits, nil
}
