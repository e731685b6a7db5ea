// SPDX-License-Identifier: Apache-2.0

package simcard

import "unsafe"

const (
	magic   = 0x3144524143534354 // "TCSCARD1"
	version = 1

	// Frame is the unit in which a card's memory is held, in bytes.
	Frame = 2 << 20
	// MaxSlots is how many processes can use a card at once.
	MaxSlots = 1024

	maxFrames  = 131072
	logSize    = 65536
	maxObjects = 8192

	// Of a frame's tag the low bits are its place in the object that it is of, and
	// the others the object's number plus one.
	tagBits = 17
	// Descriptors of objects lock this byte, and those that follow, of the card's file.
	descriptorLock = 1 << 40
)

// Kind is what a process holds memory for.
type Kind int

// Kinds in the order of the header's enumeration.
const (
	KindContext Kind = iota
	KindModule
	KindLinear
	KindManaged
	KindPool
	KindVMM
	KindArray
	KindGraph
	KindOther
	kinds
)

// String is the word that tools print.
func (k Kind) String() string {
	return [kinds]string{"context", "module", "linear", "managed", "pool", "vmm", "array", "graph", "other"}[k]
}

// slotLayout is struct simcard_slot.
type slotLayout struct {
	taken    uint32
	nsPID    int32
	held     [kinds]uint64
	heldMax  uint64
	busy     uint64
	launches uint64
	started  uint64
	lastBusy uint64
	name     [16]byte
	_        [12]uint64
}

// runLayout is struct simcard_run.
type runLayout struct {
	start, end uint64
	slot, what uint32
}

// factsLayout is the part of struct simcard that never changes.
type factsLayout struct {
	magic                    uint64
	version                  uint32
	size                     uint32
	uuid                     [64]byte
	name                     [96]byte
	pciBusID                 [32]byte
	driverVersion            [32]byte
	cudaVersion              uint32
	profile                  uint32
	index                    uint32
	minor                    uint32
	computeMajor             uint32
	computeMinor             uint32
	multiprocessors          uint32
	threadsPerMultiprocessor uint32
	memoryTotal              uint64
	memoryDriver             uint64
	contextBytes             uint64
	timeSlice                uint64
	copyBytesPerSecond       uint64
}

// objectLayout is struct card_object.
type objectLayout struct {
	id      uint64
	frames  uint64
	kind    uint64
	info    [5]uint64
	holders [MaxSlots / 64]uint64
}

// objectsLayout is struct card_shared.
type objectsLayout struct {
	recount uint64
	nextID  uint64
	objects uint64
	slots   uint64
	_       [4]uint64
	tag     [maxFrames]uint32
	kind    [maxFrames]uint8
	object  [maxObjects]objectLayout
}

const sharedSize = 4 << 20

// cardLayout is struct simcard.
type cardLayout struct {
	facts   factsLayout
	_       [256]byte
	_       [8]byte
	used    uint64
	usedMax uint64
	refused uint64
	changes uint64
	_       [96]byte
	engine  [64]uint64
	logNext uint64
	log     [logSize]runLayout
	_       [56]byte
	slot    [MaxSlots]slotLayout
	// frame holds two entries of 16 bits in each word: there are no atomic
	// operations on less than a word in Go.
	frame   [maxFrames / 2]uint32
	objects objectsLayout
	_       [sharedSize - unsafe.Sizeof(objectsLayout{})]byte
}

const cardSize = int64(unsafe.Sizeof(cardLayout{}))

// text is what stands before the first zero.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
