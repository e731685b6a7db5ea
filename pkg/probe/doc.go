// SPDX-License-Identifier: Apache-2.0

// Package probe asks tranche-arbiter whether it serves a share, as a process in
// a container would. Nothing here has state; everything may be used concurrently.
package probe
