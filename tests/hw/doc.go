// SPDX-License-Identifier: Apache-2.0

// Package hw tests the suite for machines with an NVIDIA GPU (make test-hw) on the
// simulated driver: that it passes where the sharing runtime limits, and fails
// where it does not. The suite itself is Python, so that it needs no Go.
package hw
