// SPDX-License-Identifier: Apache-2.0

package nodeview_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/nodeview"
)

func TestQuantilesOfAHistogram(t *testing.T) {
	t.Parallel()
	var h nodeview.Histogram
	require.Zero(t, h.Quantile(0.99), "of nothing")
	for range 100 {
		h.Add(time.Millisecond)
	}
	require.EqualValues(t, 100, h.Count())
	require.Equal(t, 100*time.Millisecond, h.Sum)
	require.Equal(t, time.Millisecond, h.Quantile(1), "the end of a bucket belongs to it")
	require.Equal(t, 750*time.Microsecond, h.Quantile(0.5), "spread evenly between 0.5 and 1 ms")
	h.Add(time.Hour)
	require.Equal(t, time.Second, h.Quantile(1), "the longest that can be told")
}

func TestAQuantileIsInTheBucketOfTheRealOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h nodeview.Histogram
		latencies := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Second)), 1, 50).Draw(t, "latencies")
		longest := time.Duration(0)
		for _, d := range latencies {
			h.Add(time.Duration(d))
			longest = max(longest, time.Duration(d))
		}
		lower := time.Duration(0)
		for _, bound := range nodeview.LatencyBounds() {
			if longest > bound {
				lower = bound
			}
		}
		require.GreaterOrEqual(t, h.Quantile(1), lower)
		require.LessOrEqual(t, h.Quantile(0.5), h.Quantile(1))
		require.EqualValues(t, len(latencies), h.Count())
	})
}
