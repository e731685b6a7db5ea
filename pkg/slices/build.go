// SPDX-License-Identifier: Apache-2.0

package slices

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
)

// DriverName is the name under which the cards are published, and the domain of
// their taints.
const DriverName = v1alpha1.DriverName

const (
	// DefaultSlots is how many shares a card takes where nothing else is said.
	DefaultSlots = 16
	// MinMemory is the least memory that a share may have.
	MinMemory card.MiB = 256
	// minSharedMemory is the least memory of a card that is shared: below it
	// there is room for one share only.
	minSharedMemory = 2 * MinMemory
	// devicesPerSlice is the API server's limit for slices in which a device
	// is tainted. It is kept for healthy cards as well (they could be 128):
	// otherwise the first fault would move cards from one slice to another.
	devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
)

// Options says how the cards are published.
type Options struct {
	// NodeName is the node's name, which is the name of its pool too.
	NodeName string
	// Slots is the most shares that one card takes; zero or less means DefaultSlots.
	Slots int
	// Shareable is false where the API server cannot handle devices that are
	// allocated several times: every card is published whole then.
	Shareable bool
}

// Shares tells whether c is published for sharing under these options. A card
// that is not is allocated whole to one claim at a time.
func (o Options) Shares(c card.Card) bool {
	return o.Shareable && c.Shareable() && c.Memory >= minSharedMemory
}

// SlotsPerCard is the most shares that one card takes, at least 1.
func (o Options) SlotsPerCard() int {
	if o.Slots <= 0 {
		return DefaultSlots
	}
	return o.Slots
}

// Note is something that an administrator should know about how a card is
// published. It is no reason to withhold the other cards.
type Note struct {
	// Card is the one concerned, empty for a card without a UUID.
	Card card.UUID
	// Message says what was done and why.
	Message string
}

// String is for logs and events.
func (n Note) String() string { return fmt.Sprintf("card %s: %s", n.Card, n.Message) }

// Build gives the node's pool: one device per card, sorted by index so that the
// scheduler, which takes the first that fits, fills card 0 first. No cards give
// one empty slice, which tells a driver without cards from a driver that is not
// there. The pool's generation stays zero: the publishing helper counts it.
func Build(cards []card.Card, o Options) (resourceslice.DriverResources, []Note) {
	unique, notes := publishable(cards)
	devices := make([]resourceapi.Device, 0, len(unique))
	for _, c := range unique {
		device, more := deviceOf(c, o)
		devices = append(devices, device)
		notes = append(notes, more...)
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{}}
	for chunk := range slices.Chunk(devices, devicesPerSlice) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: chunk})
	}
	if len(devices) == 0 {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: devices})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{o.NodeName: pool}}, notes
}

// publishable sorts the cards and leaves out those that cannot be told apart.
func publishable(cards []card.Card) ([]card.Card, []Note) {
	sorted := slices.SortedFunc(slices.Values(cards), compare)
	var notes []Note
	unique := make([]card.Card, 0, len(sorted))
	byName := make(map[string]card.Card, len(sorted))
	for _, c := range sorted {
		if c.UUID == "" {
			notes = append(notes, Note{Message: fmt.Sprintf(
				"the card with index %d at PCI address %s is not published: it has no UUID, so it cannot be recognised after a reboot",
				c.Index, text(c.PCIBusID))})
			continue
		}
		// UUIDs that differ in case only have the same device name.
		if first, found := byName[c.DeviceName()]; found {
			notes = append(notes, Note{Card: c.UUID, Message: fmt.Sprintf(
				"the card with index %d at PCI address %s is not published: it has the UUID of the card with index %d at PCI address %s",
				c.Index, text(c.PCIBusID), first.Index, text(first.PCIBusID))})
			continue
		}
		byName[c.DeviceName()] = c
		unique = append(unique, c)
	}
	return unique, notes
}

// compare orders by index, and cards of the same index by everything else, so
// that no two different cards are equal and the order of the input never shows.
func compare(a, b card.Card) int {
	if c := cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.PCIBusID, b.PCIBusID)); c != 0 {
		return c
	}
	return cmp.Compare(fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b))
}
