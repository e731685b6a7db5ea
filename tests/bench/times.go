// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"time"
)

// Percentile is the smallest of the times that at least p percent of them do
// not exceed, p being 0 to 100: of 40 times the 99th percentile is the longest.
// Of no times it is 0. The times are left in their order.
func Percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := (len(sorted)*p + 99) / 100
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Milliseconds is a time as a row's value, with its fraction.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
