// SPDX-License-Identifier: Apache-2.0

// Package arbiter serves the shares of one node to the processes that use them:
// it opens a socket in the directory of each share, hands out the pages of
// package wire, follows which processes live, measures what cards hold for them,
// and watches that nobody holds more than the share allows.
//
// Everything that a tenant can send or write is a hint. Messages are bounded in
// size, number and time; words of pages may have any value at any time and are
// only added up. Who harms a share's pages harms that share.
//
// Who owns what: an Arbiter has the directory watch and, by key, the served
// shares; a hosted card has the lock that guards the pages and attachments of all
// shares on it, and the meter that reads the card. A page is mapped from when its
// share is opened until it has ended, and touched only under that lock.
// A connection is one goroutine, and so is the wait for the death of a process;
// all end before Run returns. The roster, a file for each share on a volatile
// file system, lets the next arbiter know who was there.
//
// Lock order: Arbiter.mu, then hostedCard.mu. Neither is held across I/O that can
// block: sending does not wait, and cards are read without a lock.
package arbiter
