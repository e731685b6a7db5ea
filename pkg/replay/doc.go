// SPDX-License-Identifier: Apache-2.0

// Package replay lets tasks arrive at a cluster one after the other, places each
// by a policy, and says how much of the cluster they got. No task leaves; one
// that does not fit is dropped, and the next is tried. It is pure: the cluster
// that it changes is its own copy.
package replay
