// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// ContractVersion is the version of the pages and of the protocol.
const ContractVersion = 1

// Places in a container.
const (
	SharesDir  = "/run/tranche"
	ShareFile  = "share.json"
	SocketName = "arbiter.sock"
)

const (
	// PageSize in bytes is the size of the pages grant and demand.
	PageSize = 4096
	// MaxSlots is how many slots a ledger has.
	MaxSlots = 1024
	// NoLimit as a memory limit says that there is none.
	NoLimit = ^uint64(0)
)

// What the first word of each page is.
const (
	GrantMagic  uint64 = 0x31544e4152474354
	LedgerMagic uint64 = 0x31474444454c4354
	DemandMagic uint64 = 0x31444e4d44454354
)

// Bits of Grant.Flags.
const (
	// GrantEnded: the share is gone, nothing more may be allocated.
	GrantEnded uint32 = 1 << 0
	// GrantWithheld: the watchdog stopped the share.
	GrantWithheld uint32 = 1 << 1
)

// Grant is what a share may do. One page a share, which only the arbiter writes.
type Grant struct {
	Magic   uint64
	Version uint32
	Flags   atomic.Uint32
	// MemoryLimit of the share in bytes, or NoLimit.
	MemoryLimit atomic.Uint64
	// ContextEstimate in bytes is what one context is expected to take.
	ContextEstimate atomic.Uint64
	// SlotsUsed: slots with a number at or above this one are all zero.
	SlotsUsed atomic.Uint32
	_         uint32
	_         [24]byte
	// CardUUID is terminated by a zero.
	CardUUID [64]byte
	// Lease is a futex: LeaseState, LeaseContended, LeaseTell, and a count of
	// its changes from LeaseCount on, which begins where no arbiter before has come.
	Lease atomic.Uint32
	_     uint32
	// Beat is when the arbiter last saw to the card, nanoseconds of
	// CLOCK_MONOTONIC as all times here.
	Beat atomic.Uint64
	// Window of work that one process may have in flight, nanoseconds.
	Window atomic.Uint64
	// AlonePeriod, AloneStart and AloneLength say when the share may launch while
	// there is no arbiter.
	AlonePeriod, AloneStart, AloneLength atomic.Uint64
}

// Bits of Grant.Lease.
const (
	// LeaseClosed: launches wait.
	LeaseClosed uint32 = 0
	// LeaseOpen: launches pass, with at most Window in flight.
	LeaseOpen uint32 = 1
	// LeaseFree: launches pass, nobody else uses the card.
	LeaseFree uint32 = 2
	// LeaseState is the mask of the three.
	LeaseState uint32 = 3
	// LeaseContended: somebody else waits, give back what is not used.
	LeaseContended uint32 = 1 << 2
	// LeaseTell: the card is lent to others; a launch passes and rings the bell.
	LeaseTell uint32 = 1 << 3
	// LeaseCount is the lowest bit of the count of changes.
	LeaseCount uint32 = 1 << 4
)

const (
	// LeaseIdle is how long a process has nothing in flight before it gives a
	// contended lease back.
	LeaseIdle = 300 * time.Microsecond
	// LeaseLead is how long before nothing is in flight of a process any more it may say so.
	LeaseLead = 100 * time.Microsecond
	// BeatEvery is the greatest age of Grant.Beat while the share wants the card.
	BeatEvery = 250 * time.Millisecond
	// BeatLost is the age at which who waits for the card knows that there is no
	// arbiter.
	BeatLost = time.Second
)

// Slot is what one process holds of a share. All amounts are bytes.
type Slot struct {
	Pending   atomic.Uint64
	Committed atomic.Uint64
	Reserve   atomic.Uint64
	// Implicit is the only amount that the arbiter sets.
	Implicit atomic.Uint64
	Inflight atomic.Uint32
	Changes  atomic.Uint32
	HostPID  atomic.Int32
	NSPID    atomic.Int32
	// Attached is the nonce of the attachment, zero where the slot is free.
	Attached atomic.Uint64
	// Exported is at most what the card may hold when the process has ended. In a
	// slot without a process it is what the card may hold for no process.
	Exported atomic.Uint64
}

// Charge is what the slot says that its process holds. In the order in which
// amounts wander, so that nothing is missed.
func (s *Slot) Charge() uint64 {
	sum := uint64(0)
	for _, n := range [...]uint64{s.Pending.Load(), s.Committed.Load(), s.Reserve.Load(), s.Implicit.Load()} {
		sum = Add(sum, n)
	}
	return sum
}

// Keep takes the slot from a process that has ended, and leaves an amount of what
// it was charged with. Attached is what tells that the slot is not free.
func (s *Slot) Keep(bytes, attached uint64) {
	s.Implicit.Store(bytes)
	s.Exported.Store(bytes)
	s.Pending.Store(0)
	s.Committed.Store(0)
	s.Reserve.Store(0)
	s.Inflight.Store(0)
	s.Changes.Store(0)
	s.HostPID.Store(0)
	s.NSPID.Store(0)
	s.Attached.Store(attached)
}

// Clear frees the slot. Attached goes last: a slot that is free is zero.
func (s *Slot) Clear() {
	s.Pending.Store(0)
	s.Committed.Store(0)
	s.Reserve.Store(0)
	s.Implicit.Store(0)
	s.Inflight.Store(0)
	s.Changes.Store(0)
	s.HostPID.Store(0)
	s.NSPID.Store(0)
	s.Exported.Store(0)
	s.Attached.Store(0)
}

// Ledger is what the processes of a share hold together. They all can write it.
type Ledger struct {
	Magic   uint64
	Version uint32
	Slots   uint32
	// SlotsUsed is as the grant's; the greater of the two counts.
	SlotsUsed atomic.Uint32
	// Bell is a futex that whoever changed a demand page adds to and wakes.
	Bell atomic.Uint32
	// Moves is raised between the two halves of a move from slot to slot.
	Moves atomic.Uint32
	_     uint32
	_     [PageSize - 32]byte
	Slot  [MaxSlots]Slot
}

// Charge is what the slots below used hold together, in bytes; NoLimit where
// that is more than a number can say, which only a forged ledger does.
func (l *Ledger) Charge(used uint32) uint64 {
	for range chargeTries {
		moves := l.Moves.Load()
		sum := uint64(0)
		for i := range min(used, MaxSlots) {
			sum = Add(sum, l.Slot[i].Charge())
		}
		if l.Moves.Load() == moves {
			return sum
		}
	}
	return NoLimit
}

// chargeTries is how often the slots are summed while amounts move between them.
// More than that only a forged ledger needs.
const chargeTries = 1000

// Add is a + b, or NoLimit where that has no room.
func Add(a, b uint64) uint64 {
	if a > NoLimit-b {
		return NoLimit
	}
	return a + b
}

// Demand is what one attachment wants of the card's compute, and what it knows
// of the work that it has given it. Its process writes it: all are hints.
type Demand struct {
	Magic   uint64
	Version uint32
	_       uint32
	// Wants is 1 while launches wait, or work is or was just in flight.
	Wants atomic.Uint32
	// Drained is the closed lease word under which nothing is in flight any more.
	Drained atomic.Uint32
	// Waiting threads.
	Waiting atomic.Uint32
	_       uint32
	// Ends is when what is in flight is expected to end, 0 where nothing is.
	Ends atomic.Uint64
	// Used and Waited are sums of nanoseconds since the process attached: work by the card,
	// and time with at least one thread waiting.
	Used, Waited atomic.Uint64
}

// Sizes of the memory that pages are in.
const (
	GrantSize  = PageSize
	LedgerSize = int(unsafe.Sizeof(Ledger{}))
	DemandSize = PageSize
)

// Page is the type of a page.
type Page interface{ Grant | Ledger | Demand }

// In finds a page at the beginning of mapped memory, which must be aligned as
// mappings are and stay mapped while the page is used.
func In[P Page](memory []byte) (*P, error) {
	var page P
	if len(memory) < int(unsafe.Sizeof(page)) {
		return nil, fmt.Errorf("find page in memory: %d bytes are fewer than %d", len(memory), unsafe.Sizeof(page))
	}
	return (*P)(unsafe.Pointer(unsafe.SliceData(memory))), nil //nolint:gosec // the size was checked, mappings are aligned
}
