// SPDX-License-Identifier: Apache-2.0

// Package mountpoint makes the directories of the machine that a cluster mounts
// its own over, and takes away those that were not there before.
//
// A directory that was made for this is marked with an extended attribute, so
// that a later cluster knows it even if the one that made it was killed.
//
// Removing a directory tears down what is mounted on it in other mount
// namespaces, silently: Clear must only be called while no cluster lives.
package mountpoint
