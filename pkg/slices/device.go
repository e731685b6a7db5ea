// SPDX-License-Identifier: Apache-2.0

package slices

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Attributes of every card, in the driver's own domain. All of them are on every
// card: a selector on an attribute that a card lacks fails the whole pod.
const (
	AttributeUUID              resourceapi.QualifiedName = "uuid"
	AttributeIndex             resourceapi.QualifiedName = "index"
	AttributeMinor             resourceapi.QualifiedName = "minor"
	AttributeProductName       resourceapi.QualifiedName = "productName"
	AttributeArchitecture      resourceapi.QualifiedName = "architecture"
	AttributeComputeCapability resourceapi.QualifiedName = "computeCapability"
	AttributeDriverVersion     resourceapi.QualifiedName = "driverVersion"
	AttributeCUDAVersion       resourceapi.QualifiedName = "cudaVersion"
	AttributePCIBusID          resourceapi.QualifiedName = "pciBusID"
	AttributeNUMANode          resourceapi.QualifiedName = "numaNode"
	AttributeVendor            resourceapi.QualifiedName = "vendor"
)

// Capacities of a card.
const (
	// CapacityCores is compute in percent of the card.
	CapacityCores resourceapi.QualifiedName = "cores"
	// CapacityMemory is memory in bytes, always whole MiB.
	CapacityMemory resourceapi.QualifiedName = "memory"
	// CapacityOfflineCores is compute of the second ledger, for offline work.
	CapacityOfflineCores resourceapi.QualifiedName = "offlineCores"
	// CapacitySlots bounds how many shares a card takes. It is not for requests.
	CapacitySlots resourceapi.QualifiedName = "slots"
)

// unknownText is published where the hardware did not tell.
const unknownText = "unknown"

func deviceOf(c card.Card, o Options) (resourceapi.Device, []Note) {
	d := resourceapi.Device{Name: c.DeviceName(), Attributes: attributes(c)}
	if o.Shares(c) {
		shared := true
		d.AllowMultipleAllocations = &shared
		d.Capacity = sharedCapacity(c, o.SlotsPerCard())
	} else {
		d.Capacity = wholeCapacity(c)
	}
	var notes []Note
	if note := whyWhole(c, o); note != "" {
		notes = append(notes, Note{Card: c.UUID, Message: note})
	}
	var dropped int
	if d.Taints, dropped = taints(c.Faults); dropped > 0 {
		notes = append(notes, Note{Card: c.UUID, Message: fmt.Sprintf(
			"%d of its faults are not published: a device has at most %d taints", dropped, resourceapi.DeviceTaintsMaxLength)})
	}
	return d, notes
}

// whyWhole says why a card that its owner expects to be shared is published
// whole, and nothing for cards that are shared or that are whole on purpose.
func whyWhole(c card.Card, o Options) string {
	switch {
	case !o.Shareable, c.WholeOnly, o.Shares(c):
		return ""
	case c.Memory <= 0:
		return "published whole: its memory is unknown"
	default:
		return fmt.Sprintf("published whole: its memory of %s is less than two shares of %s", c.Memory, MinMemory)
	}
}

func attributes(c card.Card) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	uuid := string(c.UUID)
	if text(uuid) != uuid {
		// A UUID cut short could be that of another card.
		uuid = c.DeviceName()
	}
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		AttributeUUID:              stringAttribute(uuid),
		AttributeIndex:             intAttribute(c.Index),
		AttributeMinor:             intAttribute(c.Minor),
		AttributeProductName:       stringAttribute(c.ProductName),
		AttributeArchitecture:      stringAttribute(c.Architecture),
		AttributeComputeCapability: versionAttribute(c.ComputeCapability),
		AttributeDriverVersion:     versionAttribute(c.DriverVersion),
		AttributeCUDAVersion:       versionAttribute(c.CUDAVersion),
		AttributePCIBusID:          stringAttribute(c.PCIBusID),
		AttributeNUMANode:          intAttribute(c.NUMANode),
		AttributeVendor:            stringAttribute(c.Vendor),

		deviceattribute.StandardDeviceAttributePCIBusID: stringAttribute(shortPCIBusID(c.PCIBusID)),
		deviceattribute.StandardDeviceAttributePCIeRoot: stringAttribute(c.PCIeRoot),
	}
}

func stringAttribute(s string) resourceapi.DeviceAttribute {
	s = text(s)
	return resourceapi.DeviceAttribute{StringValue: &s}
}

func intAttribute(n int) resourceapi.DeviceAttribute {
	n64 := int64(n)
	return resourceapi.DeviceAttribute{IntValue: &n64}
}

func versionAttribute(printed string) resourceapi.DeviceAttribute {
	v := semver(printed)
	return resourceapi.DeviceAttribute{VersionValue: &v}
}

// text makes s acceptable as a string attribute: valid UTF-8, at most 64 bytes,
// cut between characters, and "unknown" where nothing is left.
func text(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, ""))
	const limit = resourceapi.DeviceAttributeMaxValueLength
	if len(s) > limit {
		end := limit
		for !utf8.RuneStart(s[end]) {
			end--
		}
		s = strings.TrimSpace(s[:end])
	}
	if s == "" {
		return unknownText
	}
	return s
}

var pciAddress = regexp.MustCompile(`^(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$`)

// shortPCIBusID is the address with the four-digit domain that the standard
// attribute wants, or nothing where the domain has more digits than that.
func shortPCIBusID(id string) string {
	m := pciAddress.FindStringSubmatch(strings.ToLower(id))
	if m == nil {
		return ""
	}
	return m[1]
}

func sharedCapacity(c card.Card, slots int) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	whole := int64(card.WholeCompute)
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		CapacityCores:        ranged(resource.DecimalSI, whole, whole, 0, 1),
		CapacityOfflineCores: ranged(resource.DecimalSI, whole, 0, 0, 1),
		CapacityMemory:       ranged(resource.BinarySI, c.Memory.Bytes(), c.Memory.Bytes(), MinMemory.Bytes(), card.MiB(1).Bytes()),
		// A range would let one share ask for all slots and close the card.
		CapacitySlots: {
			Value: *quantity(resource.DecimalSI, int64(slots)),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default:     quantity(resource.DecimalSI, 1),
				ValidValues: []resource.Quantity{*quantity(resource.DecimalSI, 1)},
			},
		},
	}
}

// wholeCapacity is for selectors and for people: the claim gets all of it. A
// request policy is not allowed on a device that is allocated once.
func wholeCapacity(c card.Card) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	capacity := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		CapacityCores: {Value: *quantity(resource.DecimalSI, int64(card.WholeCompute))},
	}
	if c.Memory > 0 {
		capacity[CapacityMemory] = resourceapi.DeviceCapacity{Value: *quantity(resource.BinarySI, c.Memory.Bytes())}
	}
	return capacity
}

func ranged(format resource.Format, value, otherwise, low, step int64) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{
		Value: *quantity(format, value),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: quantity(format, otherwise),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{
				Min: quantity(format, low), Max: quantity(format, value), Step: quantity(format, step),
			},
		},
	}
}

func quantity(format resource.Format, n int64) *resource.Quantity {
	return resource.NewQuantity(n, format)
}
