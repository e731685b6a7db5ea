// SPDX-License-Identifier: Apache-2.0

package driver

import "errors"

// Errors that callers tell apart.
var (
	// ErrPathTooLong: kubelet's root directory leaves no room for the name of
	// a socket. Nothing heals that but a shorter path.
	ErrPathTooLong = errors.New("path is too long for a socket")
	// ErrNotRegistered: kubelet has not accepted this process yet.
	ErrNotRegistered = errors.New("not registered with kubelet yet")
	// ErrNotPublished: the node's slices have not reached the API server yet.
	ErrNotPublished = errors.New("cards are not published yet")
	// ErrListingHangs: the driver of the cards does not return from a call. A
	// restart of the process may heal that, or only one of the machine.
	ErrListingHangs = errors.New("the cards' driver hangs")
	// ErrNotServing: the process has no sockets, before Run and after it.
	ErrNotServing = errors.New("not serving kubelet")
)
