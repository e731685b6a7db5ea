// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	// upTo is n, n-1, ... 1.
	upTo := func(n int) []time.Duration {
		times := make([]time.Duration, n)
		for i := range times {
			times[i] = time.Duration(n - i)
		}
		return times
	}
	for name, row := range map[string]struct {
		times []time.Duration
		p     int
		want  time.Duration
	}{
		"the median of an odd number is in the middle":     {upTo(5), 50, 3},
		"the median of an even number is the lower one":    {upTo(4), 50, 2},
		"the 99th of 40 is the longest":                    {upTo(40), 99, 40},
		"the 99th of 100 leaves one out":                   {upTo(100), 99, 99},
		"the 99th of 101 rounds up":                        {upTo(101), 99, 100},
		"the 100th is the longest":                         {upTo(7), 100, 7},
		"the lowest is the shortest":                       {upTo(7), 0, 1},
		"one time is every percentile":                     {upTo(1), 50, 1},
		"nothing measured is nothing, rather than a panic": {nil, 99, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, Percentile(row.times, row.p))
		})
	}
	times := upTo(3)
	Percentile(times, 50)
	require.Equal(t, upTo(3), times, "the caller's order is kept")
}

func TestMillisecondsKeepTheFraction(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1.5, Milliseconds(1500*time.Microsecond), 1e-9)
}
