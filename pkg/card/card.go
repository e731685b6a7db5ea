// SPDX-License-Identifier: Apache-2.0

package card

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// UUID names a card for its whole life, as its vendor prints it, for example
// "GPU-8f3c2a10-5b7e-4c21-9d0a-0123456789ab". Index and minor number may change
// at every boot; the UUID does not.
type UUID string

// MiB is an amount of memory in units of 1,048,576 bytes.
type MiB int64

// Bytes is the amount in bytes.
func (m MiB) Bytes() int64 { return int64(m) << 20 }

// FloorMiB is the number of whole MiB in n bytes.
func FloorMiB(n uint64) MiB { return MiB(n >> 20) }

// CeilMiB is how many MiB n bytes take.
func CeilMiB(n int64) MiB { return MiB((n + 1<<20 - 1) >> 20) }

// String prints the amount as a Kubernetes quantity, for example "4096Mi".
func (m MiB) String() string { return fmt.Sprintf("%dMi", int64(m)) }

// Percent is a share of one card's compute: 100 is the whole card.
type Percent int

// String prints the share with its sign, for example "30%".
func (p Percent) String() string { return fmt.Sprintf("%d%%", int(p)) }

// WholeCompute is all the compute of one card.
const WholeCompute Percent = 100

// Unknown marks an integer fact that the hardware did not tell, such as the
// NUMA node of a card on a machine with one.
const Unknown = -1

// Vendors as published in the attribute "vendor".
const (
	VendorNVIDIA = "nvidia"
	VendorAMD    = "amd"
	VendorIntel  = "intel"
)

// Card is one graphics card of this node. The zero value of a text field means
// that the hardware did not tell; integers use Unknown for that.
type Card struct {
	UUID UUID
	// Index is the position in the driver's list, Minor the number of the
	// device node (/dev/nvidia<Minor>). Neither is stable over a reboot.
	Index, Minor int
	Vendor       string
	ProductName  string
	Architecture string
	// ComputeCapability, DriverVersion and CUDAVersion are as the driver
	// prints them ("8.0", "580.65.06", "13.0").
	ComputeCapability, DriverVersion, CUDAVersion string
	// PCIBusID is domain:bus:device.function with an eight-digit domain, as
	// NVML prints it: "00000000:1b:00.0".
	PCIBusID string
	// PCIeRoot is the root complex above the card: "pci0000:15".
	PCIeRoot string
	NUMANode int
	// Memory is what containers may use: the card's total minus what the
	// driver keeps, floored to MiB. Zero means unknown: such a card is
	// published whole, never shared.
	Memory MiB
	// WholeOnly is set for cards that cannot be shared: other vendors'
	// cards, and cards split by hardware means such as MIG.
	WholeOnly bool
	// Simulated cards have no device node; their driver files come from the
	// simulated driver.
	Simulated bool
	// Faults that stand at present. Empty means healthy.
	Faults []Fault
}

// Fault is one thing that is wrong with a card.
type Fault struct {
	// Kind is a short CamelCase word, for example "XidError".
	Kind string
	// Message says what happened in people's terms.
	Message string
	// Evict asks that pods on the card are stopped (taint NoExecute); else
	// no new ones are placed there (NoSchedule).
	Evict bool
}

// Event says that something about the cards may have changed. The receiver
// lists the cards again: an event carries no state that could go stale.
type Event struct {
	// Reason is for the log: "fault", "recovery", "added", "removed".
	Reason string
	// Card is the one concerned, empty when it may be any.
	Card UUID
}

// Lister tells which cards the node has. No card is not an error.
type Lister interface {
	Cards(ctx context.Context) ([]Card, error)
}

// Watcher calls notify whenever the cards may have changed, until ctx ends.
// It returns nil when ctx ended and an error when it cannot watch any more.
type Watcher interface {
	Watch(ctx context.Context, notify func(Event)) error
}

// Source is where a node's cards come from.
type Source interface {
	Lister
	Watcher
}

// dnsLabel is what the API server accepts as a device name (RFC 1123 label).
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// DeviceName is the name under which the card is published in ResourceSlices:
// its UUID in lower case, or a digest of it where that is not a DNS label.
// It depends on nothing else, so it outlives reboots and re-ordering.
func (c Card) DeviceName() string {
	name := strings.ToLower(string(c.UUID))
	if dnsLabel.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(c.UUID))
	return "card-" + hex.EncodeToString(sum[:16])
}

// Shareable tells whether several claims may hold parts of the card at once.
func (c Card) Shareable() bool { return c.Memory > 0 && !c.WholeOnly }

// Healthy tells whether no fault stands.
func (c Card) Healthy() bool { return len(c.Faults) == 0 }
