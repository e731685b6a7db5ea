// SPDX-License-Identifier: Apache-2.0

// Package wire is the Go side of cdi/runtime/wire.h: the pages that tranche-arbiter
// shares with the processes of a share, and the messages that they exchange. A
// test compares the layouts; the header says what the fields mean.
//
// The package has no state. Words of pages that two processes touch are
// atomics; whoever maps a page owns the mapping, and nothing here outlives it.
// What a tenant can write may have any value at any time.
package wire
