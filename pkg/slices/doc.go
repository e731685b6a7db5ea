// SPDX-License-Identifier: Apache-2.0

// Package slices turns the cards of a node into what is published about them in
// ResourceSlices. It is pure: it holds no state, does no I/O, never modifies its
// input, and may be called by any number of goroutines. Equal cards give equal
// bytes, in whatever order they are listed, so that publishing twice never
// writes to the API server twice.
package slices
