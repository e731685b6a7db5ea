// SPDX-License-Identifier: Apache-2.0

// Package placement decides on which cards of which node a pod's shares go:
// policies as functions over a model of the cluster. The scheduler's plug-in and
// kubectl-tranche simulate use the same ones, so what a simulation says is what
// the scheduler does.
//
// A Node is the model of one node's cards; whoever holds it keeps it up to date
// with Take and Release. A Demand is what one pod asks for. A Policies value
// chooses cards within a node (Choose, Order) and compares nodes (Score).
// Explain says in people's terms why nothing fits, and Victims who would have to
// give way.
//
// Everything here is pure but for Take and Release, which change the Node that
// they are called on. Reading a Node, and any call of a Policies value, may be
// concurrent as long as nobody changes that Node at the same time.
package placement
