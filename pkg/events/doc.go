// SPDX-License-Identifier: Apache-2.0

// Package events tells people, through the API server, what they should look at.
// It knows events and no other kind: the client for all kinds would be most of
// the memory of a small program.
//
// A Cluster owns the goroutine that sends; everything may be used concurrently.
package events
