// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/sim"
)

// newSource is where the node's cards come from.
func newSource(config *v1alpha1.NodeConfig) (card.Source, *sim.Source) {
	fleet := sim.New(sim.Options{Path: config.SimFleet, NodeName: config.NodeName, Reserve: config.MemoryReserveMiB()})
	return fleet, fleet
}

// simulatedFiles are the driver files of simulated cards, whose device nodes
// are missing when their fleet says so.
type simulatedFiles struct {
	cdi.SimulatedDriver
	fleet *sim.Source
}

// Device implements cdi.DriverFiles.
func (s simulatedFiles) Device(ctx context.Context, c card.Card) (*specs.ContainerEdits, error) {
	if err := s.fleet.DeviceNode(ctx, c.UUID); err != nil {
		return nil, err
	}
	return s.SimulatedDriver.Device(ctx, c)
}
