// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "errors"

var (
	// ErrUnknownKind says that a document is of a kind or version that this
	// binary does not know: it may be newer.
	ErrUnknownKind = errors.New("kind is not known")
	// ErrNotOneDocument says that a file holds no document or several.
	ErrNotOneDocument = errors.New("exactly one document is expected")
)
