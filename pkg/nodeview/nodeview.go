// SPDX-License-Identifier: Apache-2.0

package nodeview

import (
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Node is everything at one moment.
type Node struct {
	// Version of the arbiter's program.
	Version string `json:"version"`
	// Scheduling says how the thread that divides compute runs: "fifo" in real time,
	// "nice" with a better priority than others, "normal" where neither is allowed.
	Scheduling string `json:"scheduling"`
	// Wakeups of that thread: none while nobody wants a card.
	Wakeups uint64 `json:"wakeups"`
	// Cards that have shares, by UUID.
	Cards []Card `json:"cards"`
}

// Card is one card and its shares.
type Card struct {
	UUID      card.UUID `json:"uuid"`
	Model     string    `json:"model,omitempty"`
	PCIBusID  string    `json:"pciBusID,omitempty"`
	Simulated bool      `json:"simulated,omitempty"`
	// MemoryMiB that shares may have altogether, 0 where that is not known, and
	// what of it no share has.
	MemoryMiB     card.MiB `json:"memoryMiB"`
	MemoryFreeMiB card.MiB `json:"memoryFreeMiB"`
	// MemoryUsed is what processes hold in bytes, as the card says; MemoryReadable is
	// false while it does not.
	MemoryUsed     uint64 `json:"memoryUsedBytes"`
	MemoryReadable bool   `json:"memoryReadable"`
	// CoresFree and OfflineCoresFree of the two ledgers of compute.
	CoresFree        card.Percent `json:"coresFree"`
	OfflineCoresFree card.Percent `json:"offlineCoresFree"`
	// Holder has the card now, empty where nobody has. Since when, in time that has
	// passed.
	Holder  share.Key     `json:"holder,omitempty"`
	HeldFor time.Duration `json:"heldForNs,omitempty"`
	// Quantum is the time slice of who waits for the card.
	Quantum  time.Duration `json:"quantumNs"`
	Switches uint64        `json:"switches"`
	// Shares by claim and request.
	Shares []Share `json:"shares"`
}

// Share is one share as it is used.
type Share struct {
	Guarantee

	// Wants: a process of it has work for the card. Draining: it was stopped, and
	// something is in flight still.
	Wants    bool `json:"wants"`
	Draining bool `json:"draining,omitempty"`
	// Withheld by the watchdog, whose findings stand.
	Withheld bool           `json:"withheld,omitempty"`
	Findings map[string]int `json:"findings,omitempty"`
	// Contended and Tell are what the lease says besides State.
	Contended bool `json:"contended,omitempty"`
	Tell      bool `json:"tell,omitempty"`

	// MemoryLimit in bytes; Unlimited where the share is a whole card.
	MemoryLimit uint64 `json:"memoryLimitBytes"`
	Unlimited   bool   `json:"unlimited,omitempty"`
	// MemoryUsed is what the processes are charged with, MemoryImplicit what of it
	// they did not ask for by name: contexts, modules, stacks.
	MemoryUsed     uint64    `json:"memoryUsedBytes"`
	MemoryImplicit uint64    `json:"memoryImplicitBytes"`
	Processes      []Process `json:"processes"`
}

// Process is one process of a share. Times are its own word.
type Process struct {
	PID int `json:"pid"`
	// PIDInContainer is its own number for itself.
	PIDInContainer int `json:"pidInContainer"`
	// Pod is the UID of the pod that it is in, empty where it is in none.
	Pod     string        `json:"pod,omitempty"`
	Wants   bool          `json:"wants"`
	Waiting uint32        `json:"waitingThreads,omitempty"`
	Used    time.Duration `json:"usedNs"`
	Waited  time.Duration `json:"waitedNs"`
}

// Guarantee is what a share was promised of a card's compute, and what it got.
type Guarantee struct {
	Key share.Key `json:"key"`
	ID  share.ID  `json:"id"`

	Card    card.UUID    `json:"card"`
	Policy  share.Policy `json:"policy"`
	Class   share.Class  `json:"class"`
	Limits  share.Limits `json:"limits"`
	Ceiling card.Percent `json:"burstCeiling"`
	Whole   bool         `json:"whole,omitempty"`
	// State of the lease: closed, open or free.
	State string `json:"state"`
	// Rate is the part of the card that it is entitled to at present, 0 to 1: nothing for
	// offline work that may not run now. Balance is what it is owed, or owes where it is negative.
	Rate    float64       `json:"rate"`
	Balance time.Duration `json:"balanceNs"`
	// Sums since the arbiter took the share on. Held is how long it had the card,
	// Wanted how long it had work for it, Throttled how long of that it did not have
	// the card, and Entitled what it should have had.
	Held      time.Duration `json:"heldNs"`
	Wanted    time.Duration `json:"wantedNs"`
	Entitled  time.Duration `json:"entitledNs"`
	Throttled time.Duration `json:"throttledNs"`
	// Preemptions is how often the card was taken from it while it wanted it, and
	// Latency how long it took each time until nothing of it was in flight.
	Preemptions uint64    `json:"preemptions"`
	Latency     Histogram `json:"latency"`
}
