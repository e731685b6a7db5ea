// SPDX-License-Identifier: Apache-2.0

package nodeview

import "time"

// bounds of the buckets of a Histogram: the upper ends, which belong to them.
var bounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, time.Second,
}

// LatencyBounds are the upper ends of a Histogram's buckets but for the last one,
// which has none.
func LatencyBounds() []time.Duration { return append([]time.Duration(nil), bounds[:]...) }

// Histogram counts durations. The zero value is ready.
type Histogram struct {
	// Counts has one bucket for each of LatencyBounds, and one for what is longer.
	Counts [len(bounds) + 1]uint64 `json:"counts"`
	Sum    time.Duration           `json:"sumNs"`
}

// Add counts one.
func (h *Histogram) Add(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += d
}

// Count is how many were counted.
func (h *Histogram) Count() uint64 {
	sum := uint64(0)
	for _, n := range h.Counts {
		sum += n
	}
	return sum
}

// Quantile estimates the duration that the part q of all does not pass, as if those
// of one bucket were spread evenly: 0 where there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := q * float64(h.Count())
	lower, below := time.Duration(0), 0.0
	for i, n := range h.Counts {
		if n > 0 && below+float64(n) >= rank {
			if i == len(bounds) {
				break
			}
			return lower + time.Duration((rank-below)/float64(n)*float64(bounds[i]-lower))
		}
		below += float64(n)
		if i < len(bounds) {
			lower = bounds[i]
		}
	}
	if below == 0 {
		return 0
	}
	return bounds[len(bounds)-1]
}
