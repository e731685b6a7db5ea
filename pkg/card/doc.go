// SPDX-License-Identifier: Apache-2.0

// Package card describes graphics cards as the rest of Tranche sees them:
// what a card is, how it is named, and what can go wrong with it. It holds no
// state and imports the standard library only; adapters that talk to real or
// simulated hardware are in its sub-packages and implement Lister and Watcher.
package card
