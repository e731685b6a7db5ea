// SPDX-License-Identifier: Apache-2.0

// Package view says what people want to know of a cluster's cards: what each
// card has and what of it is free, and which pod holds which part. It knows
// only what the API server knows (ResourceSlices, ResourceClaims and Pods), so
// it works from anywhere with read access to those; what a share really uses is
// known to its node alone.
//
// The package is pure: it does no I/O beyond writing to the writer given, holds
// no state, never changes its input, and may be used concurrently.
package view
