// SPDX-License-Identifier: Apache-2.0

package bench

import "errors"

var (
	// ErrName is a report whose name would not be a plain file name.
	ErrName = errors.New("want lower-case letters, digits and dashes")
	// ErrRow is a row that cannot be reported as it is.
	ErrRow = errors.New("unusable row")
)
