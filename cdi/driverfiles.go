// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"fmt"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
)

// DriverFiles is one source of the device nodes and libraries that a container
// needs to use a card. Answers are made from what the node has at the moment of
// the call and are never remembered: a prepare that fails because a device node
// is missing succeeds on the retry after the driver was loaded.
type DriverFiles interface {
	// Device is what a container needs for this one card, such as its device
	// node. The error names the file that is missing and the remedy. Nil
	// edits mean that nothing is needed.
	Device(ctx context.Context, c card.Card) (*specs.ContainerEdits, error)
	// Common is what a container needs once, however many of the cards of its
	// claim it uses: libraries, control nodes, hooks. The cards say which
	// vendors are concerned. The sharing runtime is in the place of the
	// libraries that it substitutes: there is no answer that leaves it out.
	Common(ctx context.Context, cards []card.Card, runtime Runtime) (*specs.ContainerEdits, error)
}

// Drivers picks the source of driver files by card. A nil source means that
// this node serves no such cards.
type Drivers struct {
	NVIDIA    DriverFiles
	Simulated DriverFiles
}

var _ DriverFiles = Drivers{}

// Device asks the source that is responsible for the card.
func (d Drivers) Device(ctx context.Context, c card.Card) (*specs.ContainerEdits, error) {
	source, err := d.of(c)
	if err != nil {
		return nil, err
	}
	return source.Device(ctx, c)
}

// Common asks the source that is responsible for the cards. A claim whose cards
// have different drivers is refused: two drivers would put their libraries in
// the same places of the container.
func (d Drivers) Common(ctx context.Context, cards []card.Card, runtime Runtime) (*specs.ContainerEdits, error) {
	if len(cards) == 0 {
		return nil, errors.New("collect driver files: no cards")
	}
	for _, c := range cards[1:] {
		if driverOf(c) != driverOf(cards[0]) {
			return nil, fmt.Errorf("collect driver files: card %s needs the %s driver and card %s the %s driver: "+
				"ask for them in separate claims, used by separate containers",
				cards[0].UUID, driverOf(cards[0]), c.UUID, driverOf(c))
		}
	}
	source, err := d.of(cards[0])
	if err != nil {
		return nil, err
	}
	return source.Common(ctx, cards, runtime)
}

// driverOf names the driver of a card: its vendor's, or the simulated one.
func driverOf(c card.Card) string {
	switch {
	case c.Simulated:
		return "simulated"
	case c.Vendor == "":
		return "unknown"
	default:
		return c.Vendor
	}
}

func (d Drivers) of(c card.Card) (DriverFiles, error) {
	var source DriverFiles
	switch driverOf(c) {
	case "simulated":
		source = d.Simulated
	case card.VendorNVIDIA:
		source = d.NVIDIA
	}
	if source == nil {
		return nil, fmt.Errorf("collect driver files of card %s: cards of driver %q are %w on this node",
			c.UUID, driverOf(c), ErrUnsupported)
	}
	return source, nil
}
