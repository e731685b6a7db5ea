// SPDX-License-Identifier: Apache-2.0

package sim

import "errors"

var (
	// ErrFleet says that the fleet file cannot be used. It wraps what is wrong
	// with it; the cards that were read before are still what there is.
	ErrFleet = errors.New("fleet file is not usable")
	// ErrListing is the failure that a fleet scripts with listError.
	ErrListing = errors.New("listing fails")
	// ErrDeviceNodeMissing is the failure that a fleet scripts for a card with
	// deviceNodeMissing.
	ErrDeviceNodeMissing = errors.New("device node is missing")
	// ErrUnknownCard says that the fleet has no such card.
	ErrUnknownCard = errors.New("no such card")
)
