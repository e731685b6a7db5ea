// SPDX-License-Identifier: Apache-2.0

package simcard

import "errors"

var (
	// ErrConfig says that no card can be made with these facts. It wraps all
	// that is wrong with them.
	ErrConfig = errors.New("facts of a simulated card are not usable")
	// ErrDiffers says that there is a card of that UUID already, with other
	// facts. The card is left as it is: processes may use it.
	ErrDiffers = errors.New("simulated card exists with other facts")
	// ErrNotACard says that a directory is not a simulated card, or is one of
	// another version.
	ErrNotACard = errors.New("not a simulated card")
)
