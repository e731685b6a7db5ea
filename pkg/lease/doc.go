// SPDX-License-Identifier: Apache-2.0

// Package lease decides which share may use a card, and for how long. It is a
// state machine in virtual time: it reads no clock, starts nothing, and gives the
// same decisions for the same calls. The arbiter tells it what happens (a share
// wants the card, has nothing in flight any more, is added, changed, gone), asks
// what is to be done, does it, and asks again when something happens or the time
// has come that the machine named.
//
// A Scheduler is not safe for concurrent use.
package lease
