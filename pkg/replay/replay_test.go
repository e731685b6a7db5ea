// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"bytes"
	"context"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/replay"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/trace"
	"github.com/tranche-dra/tranche/tests/golden"
)

const load = 1.3

func example(t *testing.T) *trace.Trace {
	t.Helper()
	read, err := trace.Open("../../tests/testdata/openb/nodes.csv", "../../tests/testdata/openb/tasks.csv")
	require.NoError(t, err)
	return read
}

func policies(t *testing.T, texts ...string) []placement.Policies {
	t.Helper()
	var out []placement.Policies
	for _, text := range texts {
		p, err := placement.Parse(text)
		require.NoError(t, err)
		out = append(out, p)
	}
	return out
}

func TestCompare(t *testing.T) {
	t.Parallel()
	read := example(t)
	seeds := []uint64{42, 43}
	summaries, err := replay.Compare(t.Context(), read, load, seeds, replay.Ours(policies(t, "spread/binpack", "binpack", "fragmentation")...))
	require.NoError(t, err)
	report := replay.NewReport(read, load, seeds, summaries)
	var table, json bytes.Buffer
	require.NoError(t, report.WriteTable(&table))
	golden.Equal(t, "openb.golden.txt", table.Bytes())
	require.NoError(t, report.WriteJSON(&json))
	golden.Equal(t, "openb.golden.json", json.Bytes())
}

func TestColumnsAreToldApart(t *testing.T) {
	t.Parallel()
	report := replay.Report{Policies: []replay.Summary{{Free: replay.Free{CardMemory: 1}}}}
	var table bytes.Buffer
	require.NoError(t, report.WriteTable(&table))
	header := regexp.MustCompile("  +").Split(strings.Split(table.String(), "\n")[2], -1)
	require.Len(t, header, 12, "with the memory of cards")
	slices.Sort(header)
	require.Len(t, slices.Compact(header), 12)
}

func TestCompareEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := replay.Compare(ctx, example(t), load, []uint64{1, 2, 3}, replay.Ours(policies(t, "binpack")...))
	require.ErrorIs(t, err, context.Canceled)
}

// ending is a placer in the middle of whose work the context ends.
type ending struct {
	replay.Placer
	end func()
}

func (e ending) Score(n *placement.Node, d *placement.Demand) (float64, bool) {
	e.end()
	return e.Placer.Score(n, d)
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	read := example(t)
	_, err := replay.Run(ctx, read, read.Arrivals(load, 1), ending{replay.Ours(placement.Default())[0].Make(read, 1), cancel})
	require.ErrorIs(t, err, context.Canceled)
}

// The verdicts that Run keeps are what it would get if it asked anew each time.
func TestRunIsAsIfEveryNodeWereAskedEachTime(t *testing.T) {
	t.Parallel()
	read := example(t)
	for _, p := range policies(t, "spread", "binpack", "fragmentation", "binpack/fragmentation") {
		for seed := range uint64(3) {
			t.Run(p.String(), func(t *testing.T) {
				t.Parallel()
				placer := replay.Ours(p)[0].Make(read, seed)
				arrivals := read.Arrivals(load, seed)
				want := plainly(read, arrivals, placer)
				got, err := replay.Run(t.Context(), read, arrivals, placer)
				require.NoError(t, err)
				require.Equal(t, want, got.Nodes)
			})
		}
	}
}

func plainly(t *trace.Trace, arrivals trace.Arrivals, placer replay.Placer) []placement.Node {
	var nodes []placement.Node
	for i := range t.Nodes {
		nodes = append(nodes, *t.Nodes[i].Clone())
	}
	for _, k := range arrivals.Kinds {
		best, bestScore := -1, math.Inf(-1)
		for i := range nodes {
			score, fits := placer.Score(&nodes[i], &t.Kinds[k])
			if fits && (score > bestScore || score == bestScore && arrivals.Rank[i] < arrivals.Rank[best]) {
				best, bestScore = i, score
			}
		}
		if best >= 0 {
			choice, _ := placer.Choose(&nodes[best], &t.Kinds[k])
			nodes[best].Take(&t.Kinds[k], choice)
		}
	}
	return nodes
}

// What the result says is what the nodes show.
func TestRunCountsWhatItPlaces(t *testing.T) {
	t.Parallel()
	read := example(t)
	before := read.Nodes[0].Clone()
	arrivals := read.Arrivals(load, 7)
	r, err := replay.Run(t.Context(), read, arrivals, replay.Ours(placement.Default())[0].Make(read, 7))
	require.NoError(t, err)
	require.Equal(t, before, &read.Nodes[0], "the trace stays as it is")
	var placed, free int64
	tasks := 0
	for k := range read.Kinds {
		placed += int64(r.Placed[k]) * read.Kinds[k].Compute()
		tasks += r.Placed[k] + r.Dropped[k]
	}
	require.Equal(t, len(arrivals.Kinds), tasks)
	for i := range r.Nodes {
		for j := range r.Nodes[i].Cards {
			free += int64(r.Nodes[i].Cards[j].Free.Compute)
		}
	}
	total := read.Compute()
	require.Equal(t, total-free, placed)
	require.InDelta(t, float64(placed)/float64(total), r.At(load), 1e-9)
	for i, p := range r.Points {
		require.LessOrEqual(t, p.Allocated, p.Arrived)
		require.LessOrEqual(t, p.Allocated, 1.0)
		if i > 0 {
			require.GreaterOrEqual(t, p.Arrived, r.Points[i-1].Arrived)
			require.GreaterOrEqual(t, p.Allocated, r.Points[i-1].Allocated)
		}
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	r := replay.Result{Points: []replay.Point{{Arrived: 0.1, Allocated: 0.1}, {Arrived: 0.3, Allocated: 0.2}, {Arrived: 0.3, Allocated: 0.2}}}
	require.InDelta(t, 0.05, r.At(0.05), 1e-12, "nothing is allocated before anything arrives")
	require.InDelta(t, 0.1, r.At(0.1), 1e-12)
	require.InDelta(t, 0.15, r.At(0.2), 1e-12)
	require.InDelta(t, 0.2, r.At(1), 1e-12, "no more arrived")
	require.Zero(t, (&replay.Result{}).At(1))
}

func TestFreeOf(t *testing.T) {
	t.Parallel()
	total := placement.Amount{Compute: placement.WholeCompute, Offline: placement.WholeCompute, Memory: 1000, Slots: 16}
	half := placement.Card{Total: total, Free: placement.Amount{Compute: 500, Offline: 1000, Memory: 400, Slots: 15}, Unclassed: 1}
	nodes := []placement.Node{{Name: "a", CPU: 8000, FreeCPU: 8000, Memory: 2000, FreeMemory: 800, Cards: []placement.Card{half, {Total: total, Free: total}}}}
	part := func(compute placement.Milli) []placement.Part {
		return []placement.Part{{Cards: 1, Class: share.NoClass, Amount: placement.Amount{Compute: compute, Memory: 100}}}
	}
	kinds := []placement.Demand{
		{Parts: part(600)},             // fits on the second card: the first is of no use
		{Parts: part(200), CPU: 9000},  // fits nowhere
		{Parts: part(100), Memory: 10}, // fits on both
		{CPU: 100},                     // asks for no card
	}
	got := replay.FreeOf(nodes, kinds, []int{1, 1, 2, 50})
	require.InDelta(t, 0.6*0.5+0.2*1.5, got.StrandedCompute, 1e-12)
	got.StrandedCompute = 0
	require.Equal(t, replay.Free{
		Compute:    1.5,
		CardMemory: 1400, StrandedCardMemory: 520, // 0.6 of 400 and 0.2 of 1400
		HostMemory: 800, StrandedHostMemory: 160,
	}, got)
	require.Zero(t, replay.FreeOf(nodes, kinds[3:], []int{1}).StrandedCompute, "for whom nothing is asked nothing is stranded")
}
