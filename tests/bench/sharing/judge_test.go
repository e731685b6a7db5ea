// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/simcard"
)

const ms = time.Millisecond

// at is a run from one millisecond to another.
func at(tenant, from, to int) run {
	return run{tenant, span{time.Duration(from) * ms, time.Duration(to) * ms}}
}

func TestContiguousStopsAtARunThatIsNotWrittenYet(t *testing.T) {
	t.Parallel()
	log := func(indexes ...uint64) []simcard.Run {
		var out []simcard.Run
		for _, i := range indexes {
			out = append(out, simcard.Run{Index: i})
		}
		return out
	}
	for name, row := range map[string]struct {
		runs []simcard.Run
		next uint64
		want int
	}{
		"nothing was written":             {nil, 7, 0},
		"all are there":                   {log(7, 8, 9), 7, 3},
		"one is missing in the middle":    {log(7, 9, 10), 7, 1},
		"the first one is missing":        {log(8, 9), 7, 0},
		"the card remembers less than it": {log(100, 101), 7, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Len(t, contiguous(row.runs, row.next), row.want)
		})
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	within := span{10 * ms, 20 * ms}
	for name, row := range map[string]struct {
		runs []run
		want []float64
	}{
		"an idle card":                                 {nil, []float64{0, 0}},
		"one has all of it":                            {[]run{at(0, 0, 100)}, []float64{100, 0}},
		"runs are cut at both ends":                    {[]run{at(0, 5, 12), at(1, 17, 30)}, []float64{20, 30}},
		"runs that only touch the window do not count": {[]run{at(0, 0, 10), at(1, 20, 30)}, []float64{0, 0}},
		"several runs add up":                          {[]run{at(0, 10, 11), at(1, 11, 12), at(0, 12, 14)}, []float64{30, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.InDeltaSlice(t, row.want, parts(row.runs, 2, within), 1e-9)
		})
	}
	require.InDeltaSlice(t, []float64{25, 75}, scaled([]float64{20, 60}), 1e-9)
	require.InDeltaSlice(t, []float64{0, 0}, scaled([]float64{0, 0}), 1e-9)
}

// However a card is divided, the windows of a stretch have on average what the
// stretch has, and no more than all of the time.
func TestPartsOfWindowsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var runs []run
		end := time.Duration(0)
		for range rapid.IntRange(0, 40).Draw(t, "runs") {
			from := end + time.Duration(rapid.IntRange(0, 5).Draw(t, "idle"))*ms
			end = from + time.Duration(rapid.IntRange(1, 30).Draw(t, "length"))*ms
			runs = append(runs, run{rapid.IntRange(0, 2).Draw(t, "tenant"), span{from, end}})
		}
		whole := span{0, 400 * ms}
		want, mean := parts(runs, 3, whole), make([]float64, 3)
		for _, w := range windows(whole, 100*ms, 100*ms) {
			got := parts(runs, 3, w)
			require.LessOrEqual(t, sum(got), 100+1e-9)
			for i := range mean {
				mean[i] += got[i] / 4
			}
		}
		require.InDeltaSlice(t, want, mean, 1e-9)
		for i, part := range parts(occupied(runs, 2*ms), 3, whole) {
			require.GreaterOrEqual(t, part, want[i]-1e-9)
		}
	})
}

func TestWindows(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		width, step time.Duration
		want        []span
	}{
		"one that fits exactly":   {10 * ms, ms, []span{{0, 10 * ms}}},
		"one that does not fit":   {11 * ms, ms, nil},
		"one after the other":     {5 * ms, 5 * ms, []span{{0, 5 * ms}, {5 * ms, 10 * ms}}},
		"ones that overlap":       {8 * ms, ms, []span{{0, 8 * ms}, {ms, 9 * ms}, {2 * ms, 10 * ms}}},
		"a rest that is left out": {4 * ms, 4 * ms, []span{{0, 4 * ms}, {4 * ms, 8 * ms}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, windows(span{0, 10 * ms}, row.width, row.step))
		})
	}
}

func TestCalmLeavesOutWhatAStandstillDisturbed(t *testing.T) {
	t.Parallel()
	all := []span{{0, time.Second}, {time.Second, 2 * time.Second}}
	for name, row := range map[string]struct {
		standstills []span
		want        []span
	}{
		"no standstill":                 {nil, all},
		"a short one":                   {[]span{{500 * ms, 502 * ms}}, all},
		"one that is too long":          {[]span{{500 * ms, 503 * ms}}, all[1:]},
		"several that are so together":  {[]span{{100 * ms, 102 * ms}, {500 * ms, 502 * ms}}, all[1:]},
		"one that reaches into both":    {[]span{{990 * ms, 1010 * ms}}, nil},
		"one that is shortly before":    {[]span{{950 * ms, 990 * ms}}, nil},
		"one that is after all of them": {[]span{{3 * time.Second, 4 * time.Second}}, all},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, calm(all, row.standstills, 100*ms))
		})
	}
}

func TestTheWorstAndTheMedianOfWindows(t *testing.T) {
	t.Parallel()
	figure := func(s span) float64 { return float64(s.from / ms) }
	require.Equal(t, spread{4, 2}, over(windows(span{0, 5 * ms}, ms, ms), figure))
	require.Equal(t, spread{3, 1}, over(windows(span{0, 4 * ms}, ms, ms), figure))
	require.Equal(t, spread{}, over(nil, figure))
	require.InDelta(t, 3, farthest([]float64{19, 33, 48}, []float64{20, 30, 50}), 1e-9)
	require.Zero(t, farthest([]float64{20, 80}, []float64{20, 80}))
}

func TestOccupied(t *testing.T) {
	t.Parallel()
	separate := []run{at(0, 0, 10), at(1, 10, 12), at(0, 12, 20)}
	for name, row := range map[string]struct{ runs, want []run }{
		"a short gap of one tenant is its own":       {[]run{at(0, 0, 10), at(0, 12, 20)}, []run{at(0, 0, 20)}},
		"a long gap is nobody's":                     {[]run{at(0, 0, 10), at(0, 14, 20)}, []run{at(0, 0, 10), at(0, 14, 20)}},
		"a gap between two tenants is nobody's":      {[]run{at(0, 0, 10), at(1, 11, 20)}, []run{at(0, 0, 10), at(1, 11, 20)}},
		"a gap that somebody else had is not joined": {[]run{separate[0], separate[2], separate[1]}, separate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, occupied(row.runs, 3*ms))
		})
	}
	require.Empty(t, occupied(nil, 3*ms))
}

func TestCopiesBesideKernelsCountOnce(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ runs, want []run }{
		"one after the other":         {[]run{at(0, 0, 5), at(0, 5, 6)}, []run{at(0, 0, 5), at(0, 5, 6)}},
		"a copy under a kernel":       {[]run{at(0, 0, 5), at(0, 1, 3), at(0, 4, 5)}, []run{at(0, 0, 5)}},
		"a copy that ends later":      {[]run{at(0, 4, 9), at(0, 0, 5)}, []run{at(0, 0, 5), at(0, 5, 9)}},
		"one under another's kernels": {[]run{at(0, 0, 5), at(1, 1, 3)}, []run{at(0, 0, 5), at(1, 1, 3)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, once(row.runs))
		})
	}
}

func TestAPauseIsOfWhoMakesIt(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ runs, want []run }{
		"the card is idle after it":          {[]run{at(0, 0, 1), at(0, 9, 10)}, []run{at(0, 0, 3), at(0, 9, 12)}},
		"somebody has the card sooner":       {[]run{at(1, 2, 5), at(0, 0, 1)}, []run{at(0, 0, 2), at(1, 2, 5)}},
		"it goes on sooner itself":           {[]run{at(0, 0, 1), at(0, 2, 3)}, []run{at(0, 0, 2), at(0, 2, 5)}},
		"others have none":                   {[]run{at(1, 0, 1), at(1, 9, 10)}, []run{at(1, 0, 1), at(1, 9, 10)}},
		"somebody has the card at that time": {[]run{at(0, 0, 4), at(1, 2, 5)}, []run{at(0, 0, 4), at(1, 2, 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, pausing(row.runs, 0, 2*ms))
		})
	}
}

func TestWhenATenantHasTheCard(t *testing.T) {
	t.Parallel()
	runs := []run{at(0, 10, 20), at(0, 30, 40)}
	for name, row := range map[string]struct {
		moment, want int
		never        bool
	}{
		"before its first run":      {5, 10, false},
		"when it has it already":    {15, 15, false},
		"at the end of a run":       {20, 30, false},
		"between two runs":          {25, 30, false},
		"at the end of the last":    {40, 0, true},
		"at the start of a run":     {30, 30, false},
		"long after it had stopped": {400, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := firstAfter(runs, time.Duration(row.moment)*ms)
			require.Equal(t, !row.never, ok)
			require.Equal(t, time.Duration(row.want)*ms, got)
		})
	}
	require.Equal(t, []time.Duration{5 * ms, 0}, delays(runs, []time.Duration{5 * ms, 35 * ms, 50 * ms}))
}

func TestPausesAndResumes(t *testing.T) {
	t.Parallel()
	requests := []span{{10 * ms, 16 * ms}, {40 * ms, 44 * ms}, {60 * ms, 63 * ms}}
	own := []run{at(0, 12, 13), at(0, 15, 16), at(0, 41, 44), at(0, 61, 63)}
	others := []run{at(1, 0, 12), at(1, 13, 15), at(1, 18, 30), at(1, 48, 61)}
	gets, stops := pauses(own, others, requests)
	require.Equal(t, []time.Duration{2 * ms, ms}, gets, "the second request found the card idle")
	require.Equal(t, []time.Duration{5 * ms, ms}, stops, "the first one shared the card with what was under way")
	require.Equal(t, []time.Duration{2 * ms, 4 * ms}, resumes(others, requests), "after the third request nobody came")
	gets, stops = pauses(own, nil, requests)
	require.Empty(t, gets)
	require.Empty(t, stops)
}

func TestTogether(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cards [][]run
		want  float64
	}{
		"never on any card":                {[][]run{nil, nil}, 0},
		"always on both":                   {[][]run{{at(0, 0, 5), at(0, 6, 9)}, {at(0, 0, 5), at(0, 6, 9)}}, 100},
		"on one card after the other":      {[][]run{{at(0, 0, 5)}, {at(0, 5, 10)}}, 0},
		"half of the time":                 {[][]run{{at(0, 0, 10)}, {at(0, 5, 10)}}, 50},
		"others' runs do not count":        {[][]run{{at(0, 0, 10), at(1, 10, 20)}, {at(0, 0, 10), at(1, 10, 15)}}, 100},
		"what is outside is not looked at": {[][]run{{at(0, 0, 200)}, {at(0, 0, 100)}}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.InDelta(t, row.want, together(row.cards, 0, span{0, 100 * ms}), 1e-9)
		})
	}
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	got := histogram([]time.Duration{0, ms / 10, ms/10 + 1, 20 * ms, 100 * ms, 101 * ms, time.Hour})
	require.Equal(t, []int{2, 1, 0, 0, 0, 0, 0, 1, 0, 1, 2}, got)
}
