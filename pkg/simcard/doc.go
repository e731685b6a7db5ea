// SPDX-License-Identifier: Apache-2.0

// Package simcard is the Go side of cdi/simdriver/simcard.h: it makes simulated
// cards, and reads from outside what is true on them. A simulated card is a
// directory that every process which uses the card has mapped; it has no
// daemon. Tests judge the sharing runtime by what this package reads. It never
// changes a card: what dead processes leave is cleared by the simulated driver
// when it needs room, or by `tranche-simcard reap`.
//
// A Card may be used by any number of goroutines until Close. Whatever several
// processes write is read by atomic operations.
package simcard
