// SPDX-License-Identifier: Apache-2.0

// Package reconcile heals the node: it compares the records with what is on
// disk, with what kubelet runs and with what the API server knows, at start, at
// once when the CDI directory changes, and periodically. It only ever acts
// on claims through package prepare, which holds the locks, so that healing and
// kubelet's calls may run at the same time. When all is well it removes versions of
// the sharing runtime that nobody uses any more.
package reconcile
