// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	defaultDriverVersion = "580.65.06"
	defaultCUDAVersion   = "13.0"
)

// place is one card of a fleet and the entry that it comes from.
type place struct {
	entry int
	card  card.Card

	absent, deviceNodeMissing bool
}

// expand gives all cards of a valid fleet, absent ones too.
func (f *Fleet) expand(node string) []place {
	var places []place
	for i, e := range f.Cards {
		for range e.count() {
			places = append(places, place{
				entry: i, card: e.card(node, len(places), f.Defaults), absent: e.Absent, deviceNodeMissing: e.DeviceNodeMissing,
			})
		}
	}
	return places
}

// Present are the cards of a valid fleet on the node of that name.
func (f *Fleet) Present(node string) []card.Card {
	cards := []card.Card{}
	for _, p := range f.expand(node) {
		if !p.absent {
			cards = append(cards, p.card)
		}
	}
	return cards
}

func (e Entry) count() int {
	if e.Count == nil {
		return 1
	}
	// One more than too many is too many as well, and does not overflow.
	return min(*e.Count, maxCards+1)
}

func (e Entry) card(node string, position int, defaults Facts) card.Card {
	facts := e.over(defaults)
	known, _ := modelOf(facts.Model)
	index := position
	if e.Index != nil {
		index = *e.Index
	}
	minor := index
	if e.Minor != nil {
		minor = *e.Minor
	}
	numa := index / 4 % 2
	if facts.NUMANode != nil {
		numa = *facts.NUMANode
	}
	vendor := cmp.Or(facts.Vendor, card.VendorNVIDIA)
	total, reserved := facts.totalAndReserved()
	c := card.Card{
		UUID:              card.UUID(cmp.Or(e.UUID, uuidOf(node, index))),
		Index:             index,
		Minor:             minor,
		Vendor:            vendor,
		ProductName:       cmp.Or(facts.ProductName, known.productName),
		Architecture:      cmp.Or(facts.Architecture, known.architecture),
		ComputeCapability: cmp.Or(facts.ComputeCapability, known.computeCapability),
		DriverVersion:     cmp.Or(facts.DriverVersion, defaultDriverVersion),
		CUDAVersion:       cmp.Or(facts.CUDAVersion, defaultCUDAVersion),
		PCIBusID:          longPCIBusID(cmp.Or(e.PCIBusID, pciBusIDOf(index))),
		PCIeRoot:          cmp.Or(facts.PCIeRoot, pcieRootOf(index)),
		NUMANode:          numa,
		Memory:            card.FloorMiB(uint64(max(total-reserved, 0))),
		WholeOnly:         vendor != card.VendorNVIDIA || facts.WholeOnly != nil && *facts.WholeOnly,
		Simulated:         true,
	}
	for _, f := range e.Faults {
		c.Faults = append(c.Faults, card.Fault{Kind: f.Kind, Message: f.Message, Evict: f.Evict})
	}
	return c
}

// over gives what is said here, and what the defaults say of the rest.
func (f Facts) over(defaults Facts) Facts {
	return Facts{
		Model:             cmp.Or(f.Model, defaults.Model),
		ProductName:       cmp.Or(f.ProductName, defaults.ProductName),
		Memory:            cmp.Or(f.Memory, defaults.Memory),
		ReservedMemory:    cmp.Or(f.ReservedMemory, defaults.ReservedMemory),
		Architecture:      cmp.Or(f.Architecture, defaults.Architecture),
		ComputeCapability: cmp.Or(f.ComputeCapability, defaults.ComputeCapability),
		DriverVersion:     cmp.Or(f.DriverVersion, defaults.DriverVersion),
		CUDAVersion:       cmp.Or(f.CUDAVersion, defaults.CUDAVersion),
		Vendor:            cmp.Or(f.Vendor, defaults.Vendor),
		PCIeRoot:          cmp.Or(f.PCIeRoot, defaults.PCIeRoot),
		NUMANode:          cmp.Or(f.NUMANode, defaults.NUMANode),
		WholeOnly:         cmp.Or(f.WholeOnly, defaults.WholeOnly),
	}
}

// totalAndReserved of valid facts, in bytes.
func (f Facts) totalAndReserved() (total, reserved int64) {
	total, _ = f.Memory.bytes()
	if known, found := modelOf(f.Model); found && f.Memory == "" {
		total = known.memory.Bytes()
	}
	reserved, _ = f.ReservedMemory.bytes()
	return total, reserved
}

// uuidOf depends on the node's name and the index only, so that a fleet keeps
// its names over restarts and two nodes with the same fleet file do not clash.
func uuidOf(node string, index int) string {
	sum := sha256.Sum256([]byte(node + "\x00" + strconv.Itoa(index)))
	sum[6] = sum[6]&0x0f | 0x80 // version 8: made up by its owner
	sum[8] = sum[8]&0x3f | 0x80 // the variant of RFC 9562
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// pciBusIDOf puts 31 cards in a domain, eight buses apart, as a bridge above
// each would.
func pciBusIDOf(index int) string { return fmt.Sprintf("%08x:%02x:00.0", index/31, 8*(index%31)+8) }

// pcieRootOf puts two neighbours under one root.
func pcieRootOf(index int) string {
	index -= index % 31 % 2
	return fmt.Sprintf("pci%04x:%02x", index/31, 8*(index%31))
}

// longPCIBusID has the eight-digit domain that drivers print.
func longPCIBusID(id string) string {
	if domain, rest, _ := strings.Cut(id, ":"); len(domain) == 4 {
		return "0000" + domain + ":" + rest
	}
	return id
}
