// SPDX-License-Identifier: Apache-2.0

package main

import "runtime/debug"

const (
	// memoryTarget in bytes is what the process may take, shares and cards of
	// a full node included; the collector works harder near it and never fails
	// because of it.
	memoryTarget = 36 << 20
	// collectAt is the growth in percent after which memory is collected. The
	// process idles most of the time, so memory is worth more than time.
	collectAt = 40
)

// limitMemory keeps the process small, unless the environment says otherwise.
func limitMemory(getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryTarget)
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}
