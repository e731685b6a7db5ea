// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"fmt"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/durable"
)

// SimulatedDriver is the source of driver files for simulated cards: one
// directory of the node, the same for all of them. Simulated cards have no
// device nodes.
type SimulatedDriver struct {
	dir   string
	files durable.Files
}

var _ DriverFiles = SimulatedDriver{}

// NewSimulatedDriver hands out the directory dir, an absolute path on the host.
// It is made when it is first needed.
func NewSimulatedDriver(dir string, files durable.Files) SimulatedDriver {
	return SimulatedDriver{dir: dir, files: files}
}

// Device needs nothing for a simulated card.
func (s SimulatedDriver) Device(context.Context, card.Card) (*specs.ContainerEdits, error) {
	return nil, nil //nolint:nilnil // nil edits are an answer, see DriverFiles
}

// Common mounts the simulated driver's directory.
func (s SimulatedDriver) Common(context.Context, []card.Card) (*specs.ContainerEdits, error) {
	if err := s.files.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("offer the simulated driver: %w", err)
	}
	return &specs.ContainerEdits{Mounts: []*specs.Mount{{
		HostPath:      s.dir,
		ContainerPath: ContainerDriverDir,
		// Not noexec: libraries are mapped executable.
		Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"},
	}}}, nil
}
