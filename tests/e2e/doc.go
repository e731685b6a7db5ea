// SPDX-License-Identifier: Apache-2.0

// Package e2e runs Tranche on a real Kubernetes node: the driver is a DaemonSet
// pod with its own service account, scheduler and kubelet are the real ones,
// and the tests look at what API server, containers and disk show. It runs
// inside the cluster of tests/cluster ("make test-e2e"), whose mount namespace
// it shares with the node, and needs two simulated cards of 24 GiB.
package e2e
