// SPDX-License-Identifier: Apache-2.0

// Package cgroups makes and removes the cgroup below which a cluster's kubelet
// keeps its pods, in every hierarchy of the machine, version 1 or 2.
//
// The machine's own cgroups and their mounts are left as they are. A cgroup of
// ours is held by a lock (package lock) for as long as its cluster lives, so that a
// later start can tell what a killed one left behind.
package cgroups
