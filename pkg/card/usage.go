// SPDX-License-Identifier: Apache-2.0

package card

// ProcessMemory is what one process holds of a card.
type ProcessMemory struct {
	// PID is its number in the PID namespace of the process that asked.
	PID int
	// Bytes of the card's memory.
	Bytes uint64
}

// ProcessCompute is what one process computed on a card lately.
type ProcessCompute struct {
	// PID is its number in the PID namespace of the process that asked.
	PID int
	// Part of the time, 0 to 1, in which the card did work of the process.
	Part float64
}
