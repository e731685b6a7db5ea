// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
)

// Cards checks the node's cards, and whether containers could be given them.
type Cards struct {
	Lister card.Lister
	Files  cdi.DriverFiles
	// Runtime is what containers would mount with the driver's files; where there
	// is none, SharingRuntime tells of it.
	Runtime func() (cdi.Runtime, error)
	// WhyNone says why there may be no card, where there is none.
	WhyNone func() string
}

// Examine implements Examiner.
func (c Cards) Examine(ctx context.Context) []Finding {
	cards, err := c.Lister.Cards(ctx)
	if err != nil {
		return one(Problem, err.Error(), "see what the card's own tools (nvidia-smi) say on the node")
	}
	if len(cards) == 0 {
		return one(Warning, "no cards: "+c.WhyNone(), "nothing, if this node has none; else install the driver, or say where it is: --driver-root")
	}
	var found []Finding
	for _, item := range cards {
		found = append(found, c.examine(ctx, item)...)
	}
	runtime, err := c.Runtime()
	if err != nil {
		return found
	}
	// What the cards of a claim have in common is the same for all of a kind.
	if _, err := c.Files.Common(ctx, cards[:1], runtime); err != nil {
		found = append(found, Finding{Level: Problem, Seen: err.Error(), Remedy: "as it says: pods with a claim wait until the files are there"})
	}
	return found
}

// examine says what a card is, what is wrong with it, and which file it lacks.
func (c Cards) examine(ctx context.Context, item card.Card) []Finding {
	name := fmt.Sprintf("card %s (index %d, %s)", item.UUID, item.Index, item.ProductName)
	var found []Finding
	switch {
	case item.WholeOnly:
		found = append(found, Finding{Level: OK, Seen: name + " is for one claim at a time: it is split by its own means (MIG), or not one that can be shared"})
	case item.Memory == 0:
		found = append(found, Finding{Level: Warning, Seen: name + " is for one claim at a time: its memory is unknown", Remedy: "update the card's driver if it should be shared"})
	default:
		found = append(found, Finding{Level: OK, Seen: fmt.Sprintf("%s can be shared, with %s", name, item.Memory)})
	}
	for _, fault := range item.Faults {
		effect := "no new pods go there"
		if fault.Evict {
			effect = "its pods are stopped"
		}
		found = append(found, Finding{
			Level: Problem, Seen: fmt.Sprintf("%s has the fault %s, %s: %s", name, fault.Kind, effect, fault.Message),
			Remedy: "reset or replace the card; it is used again when the fault is gone",
		})
	}
	if _, err := c.Files.Device(ctx, item); err != nil {
		found = append(found, Finding{Level: Problem, Seen: err.Error(), Remedy: "as it says: pods on this card wait until the file is there"})
	}
	return found
}
