// SPDX-License-Identifier: Apache-2.0

// Package workdir makes and removes a cluster's directory. It is locked
// (package lock) while its cluster lives; a temporary one that nobody holds was left by
// a cluster that was killed, and the next one removes it.
package workdir
