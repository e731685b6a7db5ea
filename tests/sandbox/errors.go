// SPDX-License-Identifier: Apache-2.0

package sandbox

import "errors"

var (
	// ErrClosed is what a box answers after Close.
	ErrClosed = errors.New("the box is closed")
	// ErrRoot is a machine on which this user cannot make namespaces.
	ErrRoot = errors.New("a box takes root: namespaces and mounts are made")
)
