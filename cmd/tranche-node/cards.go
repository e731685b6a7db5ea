// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/nvidia"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
	"github.com/tranche-dra/tranche/pkg/card/sim"
	"github.com/tranche-dra/tranche/pkg/simcard"
)

// hardware is where the node's cards, and the files that containers need for
// them, come from.
type hardware struct {
	card.Source
	files cdi.Drivers
	close func()
}

// newHardware picks the source. It does no I/O: cards that are not there yet,
// or a driver that is not loaded yet, may come later.
func newHardware(config *v1alpha1.NodeConfig) (hardware, error) {
	if config.CardSource == v1alpha1.CardsSim || config.CardSource == v1alpha1.CardsAuto && config.SimFleet != "" {
		fleet := sim.New(sim.Options{Path: config.SimFleet, NodeName: config.NodeName, Reserve: config.MemoryReserveMiB()})
		files := simulatedFiles{cdi.NewSimulatedDriver(filepath.Join(config.RunDir, "cards"), makeCard), fleet}
		return hardware{Source: fleet, files: cdi.Drivers{Simulated: files}, close: func() {}}, nil
	}
	files, err := nvidia.New(nvidia.Options{Driver: nvidia.Root{Host: config.DriverRoot, Here: config.DriverRootMount}})
	if err != nil {
		return hardware{}, fmt.Errorf("look for cards: %w", err)
	}
	source := nvml.New(nvml.Options{DriverRoot: config.DriverRootMount, Reserve: config.MemoryReserveMiB()})
	return hardware{Source: source, files: cdi.Drivers{NVIDIA: files}, close: func() { letGo(source.Close, closeLimit) }}, nil
}

// closeLimit is how long cards may take to be closed. The end of the process
// closes them as well.
const closeLimit = time.Second

// letGo calls what lets go of cards and waits for it, but not for long: in a
// driver that hangs it waits for calls that never return.
func letGo(end func(), limit time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		end()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// makeCard makes a simulated card below dir, and returns its own directory.
func makeCard(dir string, c card.Card) (string, error) {
	config, err := simcard.FromCard(c)
	if err != nil {
		return "", err
	}
	path, err := simcard.Create(dir, config)
	if errors.Is(err, simcard.ErrDiffers) {
		return "", fmt.Errorf("%w: delete that directory once no pod has the card, or give the card its facts back", err)
	}
	return path, err
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
