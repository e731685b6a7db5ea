// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/replay"
	"github.com/tranche-dra/tranche/pkg/trace"
)

const (
	smallNodes = "../../testdata/openb/nodes.csv"
	smallTasks = "../../testdata/openb/tasks.csv"
)

func copied(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
}

// traceDir has one variant in files that are named as the published ones are.
func traceDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	copied(t, smallNodes, filepath.Join(dir, nodesFile))
	copied(t, smallTasks, filepath.Join(dir, tasksBefore+"small"+tasksAfter))
	return dir
}

func TestRunReportsWhatItFinds(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	in, err := find(traceDir(t), "", "")
	require.NoError(t, err)
	var text bytes.Buffer
	// Ten replays of a small cluster say nothing of who is better.
	err = run(&text, in, out, 1)
	if err != nil {
		require.ErrorContains(t, err, "small, fragmentation, ours, 130 % asked for")
	}
	require.Contains(t, text.String(), "small  at 130 %")
	require.Contains(t, text.String(), "small, BestFit, written anew, 130 % asked for")
	require.NotContains(t, text.String(), "sample")
	require.FileExists(t, filepath.Join(out, "placement.json"))
}

func TestWithoutTheTraceTheSampleIsReplayed(t *testing.T) {
	t.Parallel()
	in, err := find("", filepath.Join(t.TempDir(), "none"), filepath.Dir(smallNodes))
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, run(&text, in, t.TempDir(), 1), "a sample has no targets to miss")
	require.Contains(t, text.String(), "sample  at 130 %")
	require.Contains(t, text.String(), "github.com/alibaba/clusterdata")
}

func TestWhereTheTraceIsLookedFor(t *testing.T) {
	t.Parallel()
	named, beside := traceDir(t), traceDir(t)
	in, err := find(named, beside, "")
	require.NoError(t, err)
	require.Equal(t, named, in.dir, "what is named comes first")
	in, err = find("", beside, "")
	require.NoError(t, err)
	require.Equal(t, beside, in.dir)
	_, err = find(t.TempDir(), beside, filepath.Dir(smallNodes))
	require.ErrorIs(t, err, errData, "nothing takes the place of what was named")
	require.ErrorContains(t, err, "github.com/alibaba/clusterdata")
	require.NoError(t, in.keep("small"))
	require.Len(t, in.variants, 1)
	require.ErrorContains(t, in.keep("large"), `there is no trace "large", but small`)
}

// Whoever is compared places nothing where there is no room, and takes what it
// said it would.
func TestRivalsKeepToWhatThereIs(t *testing.T) {
	t.Parallel()
	small, err := trace.Open(smallNodes, smallTasks)
	require.NoError(t, err)
	for _, r := range rivals() {
		result, err := replay.Run(t.Context(), small, small.Arrivals(load, 3), r.Make(small, 3))
		require.NoError(t, err)
		for i := range result.Nodes {
			n := &result.Nodes[i]
			require.GreaterOrEqual(t, int64(n.FreeCPU), int64(0), r.Name)
			require.GreaterOrEqual(t, int64(n.FreeMemory), int64(0), r.Name)
			for c := range n.Cards {
				require.GreaterOrEqual(t, int(n.Cards[c].Free.Compute), 0, r.Name)
			}
		}
	}
}

func cards(free ...placement.Milli) *placement.Node {
	n := &placement.Node{CPU: 64000, FreeCPU: 32000}
	for _, f := range free {
		total := placement.Amount{Compute: placement.WholeCompute, Slots: 16}
		c := placement.Card{Total: total, Free: total}
		if f < placement.WholeCompute {
			c.Free.Compute, c.Unclassed = f, 1
		}
		n.Cards = append(n.Cards, c)
	}
	return n
}

// The measure that FGD goes by, worked out by hand.
func TestFGDCountsWhatATypicalTaskCannotUse(t *testing.T) {
	t.Parallel()
	share := placement.Demand{CPU: 8000, Parts: []placement.Part{{Cards: 1, Amount: placement.Amount{Compute: 600}}}}
	n := cards(500, 1000, 100)
	require.InDelta(t, 600, unusable(n, &share, 1600), 0, "two cards are too small")
	two := placement.Demand{Parts: []placement.Part{{Cards: 2, Whole: true}}}
	require.InDelta(t, 1600, unusable(n, &two, 1600), 0, "it does not fit")
	share.CPU = 40000
	require.InDelta(t, 1600, unusable(n, &share, 1600), 0, "the CPU is not enough")
	require.InDelta(t, 1600, unusable(n, &placement.Demand{}, 1600), 0, "it uses no card")
}

func TestPackingPrefersSharedCardsThenNodesInUse(t *testing.T) {
	t.Parallel()
	p := packing(nil, 0)
	d := placement.Demand{Parts: []placement.Part{{Cards: 1, Amount: placement.Amount{Compute: 300}}}}
	score := func(n *placement.Node) float64 {
		s, fits := p.Score(n, &d)
		require.True(t, fits)
		return s
	}
	require.Greater(t, score(cards(300, 1000)), score(cards(700, 1000)), "the tightest shared card")
	require.Greater(t, score(cards(700, 1000)), score(cards(200, 1000)), "then a free card of a node in use")
	require.Greater(t, score(cards(200, 1000)), score(cards(1000, 1000)), "then a free node")
}

func TestClusteringKeepsSizesTogether(t *testing.T) {
	t.Parallel()
	p := newClustering(nil, 0)
	share := func(compute placement.Milli) *placement.Demand {
		return &placement.Demand{Parts: []placement.Part{{Cards: 1, Amount: placement.Amount{Compute: compute}}}}
	}
	wholeOf := func(cards int) *placement.Demand {
		return &placement.Demand{Parts: []placement.Part{{Cards: cards, Whole: true}}}
	}
	put := func(n *placement.Node, demands ...*placement.Demand) *placement.Node {
		for _, d := range demands {
			choice, fits := p.Choose(n, d)
			require.True(t, fits)
			n.Take(d, choice)
		}
		return n
	}
	full := func() *placement.Node { return cards(1000, 1000, 1000, 1000) }
	d := share(300)
	best := []*placement.Node{
		put(full(), share(200), share(900)), // shares only
		put(full(), share(200)),
		put(full(), share(200), wholeOf(1)), // others beside them
		full(),
		put(full(), wholeOf(1), wholeOf(2)), // others only
		put(full(), wholeOf(2)),
	}
	var scores []float64
	for _, n := range best {
		score, fits := p.Score(n, d)
		require.True(t, fits)
		scores = append(scores, score)
	}
	require.IsDecreasing(t, scores)
	two, _ := p.Score(best[5], wholeOf(2))
	one, _ := p.Score(best[5], wholeOf(1))
	require.Greater(t, two, one, "tasks of one card and of two are of different sizes")
	none, _ := p.Score(best[0], &placement.Demand{CPU: 1000})
	require.Zero(t, none, "nodes are equal for a task without cards")
}
