// SPDX-License-Identifier: Apache-2.0

// Package rig is a node without Kubernetes: simulated cards, shares on them, the
// real arbiter, and boxes in which programs use their shares as containers do.
// Tests and benchmarks of the sharing runtime run on it. What they judge by is
// the truth of the cards, read from outside, and never what the runtime says of
// itself.
//
// A Rig owns a directory, the arbiter's process and all boxes; Close ends them. It
// may be used concurrently, but for Close.
package rig
