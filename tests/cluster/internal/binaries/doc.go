// SPDX-License-Identifier: Apache-2.0

// Package binaries builds the cluster's programs from Go modules, once.
//
// The results of one set of sources, flags and Go version are a directory of the
// cache named by their hash. It appears by a rename, whole, and is never changed
// afterwards. A running cluster holds its directory by a shared lock; pruning
// takes only what nobody holds.
package binaries
