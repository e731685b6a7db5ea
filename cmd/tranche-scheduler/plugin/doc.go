// SPDX-License-Identifier: Apache-2.0

// Package plugin is kube-scheduler's plug-in Tranche. It takes the place of
// DynamicResources, which it wraps: allocation itself, reserving, binding and
// everything else about claims stays what Kubernetes does. What Tranche adds is
// which card is tried first, which node is best, why nothing fits, and who gives
// way to whom.
//
// An attempt is what is known about one pod during one scheduling cycle. It begins
// in PreFilter, and lives in the CycleState. Filter and Score, which run concurrently
// for many nodes, only read it, but for the nodes that it remembers under a lock.
//
// The inventory, which says what there is, and the ledger, which says what is taken,
// are shared by all profiles of one process and kept up to date from one attempt to the
// next. Both are safe for concurrent use. DynamicResources copies the allocations of
// the whole cluster for each attempt: that is done only for pods that the allocator has
// to be asked about on every node, and while the ledger is behind the informer.
//
// Before others give way the attempt is made anew from one roll of all claims, so that
// what is allocated and who has it are of one moment. Rooms are what is kept on cards for
// the pods that others gave way to, evictions who these are. Both are shared, too; rooms
// call evictions with their lock held, never the other way round.
package plugin
