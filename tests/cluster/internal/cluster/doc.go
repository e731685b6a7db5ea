// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a command in a cluster of its own: it is the part that
// stays on the machine, makes what the inside needs there (package node), and takes it
// away again however the inside ends.
package cluster
