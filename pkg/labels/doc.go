// SPDX-License-Identifier: Apache-2.0

// Package labels follows the two labels by which people change how shares are
// treated while everything runs: tranche.dev/default-policy on this Node, and
// tranche.dev/burst-ceiling on ResourceClaims.
//
// The API server sends the metadata of what is asked for and nothing else, and
// none of it is kept, so that neither the size of the cluster nor the number of
// claims shows in the memory of a node's agent. A claim is found by its label, not
// by an annotation: the API server selects by labels, so one watch a node is told
// of the few claims that have the label, where an annotation would need every claim
// of the cluster sent to every node, or a watch for each share.
//
// DefaultPolicy may be asked by anybody at any time. All else happens in the
// goroutine that calls Run.
package labels
