// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/trace"
)

func TestReadNodes(t *testing.T) {
	t.Parallel()
	nodes, err := trace.ReadNodes(strings.NewReader("model,gpu,sn,memory_mib,cpu_milli\nT4,2,a,1024,4000\n,0,b,2048,8000\n"), "nodes.csv")
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	require.Equal(t, "a", nodes[0].Name)
	require.Equal(t, placement.MilliCPU(4000), nodes[0].FreeCPU)
	require.Len(t, nodes[0].Cards, 2)
	require.Equal(t, "T4", nodes[0].Cards[1].Model)
	require.Equal(t, placement.WholeCompute, nodes[0].Cards[1].Free.Compute)
	require.True(t, nodes[0].Cards[0].Empty())
	require.Empty(t, nodes[1].Cards)
}

func TestReadTasks(t *testing.T) {
	t.Parallel()
	const file = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,gpu_memory_mib,class\n" +
		"a,1000,512,1,470,V100M32|V100M16,8192,online\n" +
		"b,1000,512,1,470,V100M16|V100M32,8192,online\n" +
		"c,2000,512,2,1000.0,,,\n" +
		"d,2000,512,0,0,,,\n" +
		"e,0,0,1,300,,1024,offline\n"
	kinds, tasks, err := trace.ReadTasks(strings.NewReader(file), "tasks.csv")
	require.NoError(t, err)
	require.Equal(t, []int{0, 0, 1, 2, 3}, tasks, "the order of models makes no other kind")
	require.Equal(t, []placement.Demand{
		{CPU: 1000, Memory: 512, Models: []string{"V100M16", "V100M32"}, Parts: []placement.Part{
			{Cards: 1, Amount: placement.Amount{Compute: 470, Memory: 8192}, Class: share.Online},
		}},
		{CPU: 2000, Memory: 512, Parts: []placement.Part{{Cards: 2, Whole: true, Class: share.NoClass}}},
		{CPU: 2000, Memory: 512},
		{Parts: []placement.Part{{Cards: 1, Amount: placement.Amount{Offline: 300, Memory: 1024}, Class: share.Offline}}},
	}, kinds)
}

func TestWrongFilesAreRefusedWithThePlace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ file, want string }{
		"nothing":                    {"", "t.csv:1:1: the file is empty: a header with num_gpu, gpu_milli is needed"},
		"a column is missing":        {"name,num_gpu\n", "t.csv:1:1: column is missing: gpu_milli; the header has name, num_gpu"},
		"a column twice":             {"num_gpu,gpu_milli,num_gpu\n", `t.csv:1:19: column "num_gpu" is there twice`},
		"a word for a number":        {"num_gpu,gpu_milli\n1,100\n1,much\n", `t.csv:3:3: gpu_milli is "much": a whole number from 0 to 1000 is right`},
		"more than a card":           {"num_gpu,gpu_milli\n1,1001\n", `t.csv:2:3: gpu_milli is "1001": a whole number from 0 to 1000 is right`},
		"a fraction":                 {"num_gpu,gpu_milli\n1,100.5\n", `t.csv:2:3: gpu_milli is "100.5"`},
		"less than nothing":          {"num_gpu,gpu_milli\n-1,100\n", `t.csv:2:1: num_gpu is "-1": a whole number from 0 to 1024 is right`},
		"a card of which it is none": {"num_gpu,gpu_milli\n1,\n", `t.csv:2:3: gpu_milli is "" for a task with num_gpu 1: 1 to 1000 thousandths of each card is right`},
		"a class that is none":       {"num_gpu,gpu_milli,class\n1,5,batch\n", `t.csv:2:5: class is "batch": online, offline or none is right`},
		"a cell too many":            {"num_gpu,gpu_milli\n1,100,3\n", "t.csv:2:1: wrong number of fields"},
		"a quote that stays open":    {"num_gpu,gpu_milli\n\"1,100\n", "t.csv:2:8: extraneous or missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := trace.ReadTasks(strings.NewReader(tc.file), "t.csv")
			require.ErrorContains(t, err, tc.want)
			var at *trace.PositionError
			require.ErrorAs(t, err, &at)
		})
	}
}

func example(t *testing.T) *trace.Trace {
	t.Helper()
	read, err := trace.Open("../../tests/testdata/openb/nodes.csv", "../../tests/testdata/openb/tasks.csv")
	require.NoError(t, err)
	return read
}

func TestOpenNamesTheFileThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := trace.Open("../../tests/testdata/openb/nodes.csv", "no-such.csv")
	require.ErrorContains(t, err, "no-such.csv")
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	read := example(t)
	rapid.Check(t, func(t *rapid.T) {
		load := rapid.Float64Range(0.01, 3).Draw(t, "load")
		seed := rapid.Uint64().Draw(t, "seed")
		got := read.Arrivals(load, seed)
		require.Equal(t, got, read.Arrivals(load, seed), "chance comes from the seed alone")
		var sum, most int64
		counts := make([]int, len(read.Kinds))
		for _, k := range got.Kinds {
			sum += read.Kinds[k].Compute()
			counts[k]++
		}
		for k := range read.Kinds {
			most = max(most, read.Kinds[k].Compute())
		}
		target := load * float64(read.Compute())
		require.LessOrEqual(t, float64(sum), target)
		require.Greater(t, float64(sum), target-float64(most)-1, "so near that the next may pass it")
		if whole := math.Trunc(load); whole >= 2 { // the trace alone asks for less than twice the cluster
			for _, k := range read.Tasks {
				counts[k]--
			}
			for k, n := range counts {
				require.GreaterOrEqual(t, n, 0, "every task of the trace arrives: kind %d", k)
			}
		}
		ranks := map[int]bool{}
		for _, r := range got.Rank {
			ranks[r] = true
		}
		require.Len(t, ranks, len(read.Nodes))
	})
}

func TestATraceWithoutCardsArrivesAsItIs(t *testing.T) {
	t.Parallel()
	kinds, tasks, err := trace.ReadTasks(strings.NewReader("num_gpu,gpu_milli\n0,0\n0,0\n"), "t.csv")
	require.NoError(t, err)
	require.Len(t, (&trace.Trace{Kinds: kinds, Tasks: tasks}).Arrivals(1.3, 1).Kinds, 2)
}

func TestATraceThatCannotAskForTheLoadIsRefused(t *testing.T) {
	t.Parallel()
	const oneCard = "gpu\n1\n"
	for name, tc := range map[string]struct {
		nodes, tasks string
		load         float64
		want         string
	}{
		"no nodes":           {"gpu\n", "num_gpu,gpu_milli\n1,1000\n", 1.3, "no node of the trace has a card"},
		"no cards":           {"gpu\n0\n", "num_gpu,gpu_milli\n1,1000\n", 1.3, "no node of the trace has a card"},
		"no tasks":           {oneCard, "num_gpu,gpu_milli\n", 1.3, "no task of the trace asks for a card"},
		"no task of a card":  {oneCard, "num_gpu,gpu_milli\n0,0\n", 1.3, "no task of the trace asks for a card"},
		"tasks too large":    {oneCard, "num_gpu,gpu_milli\n0,0\n1,500\n", 0.4, "asks for more than 40 % of all compute"},
		"next to no task":    {"gpu\n" + strings.Repeat("1000\n", 100), "num_gpu,gpu_milli\n" + strings.Repeat("0,0\n", 1000) + "1,10\n", 1.3, "some 1.3e+10 tasks would have to arrive"},
		"one that just fits": {oneCard, "num_gpu,gpu_milli\n1,500\n", 0.5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes, err := trace.ReadNodes(strings.NewReader(tc.nodes), "n.csv")
			require.NoError(t, err)
			kinds, tasks, err := trace.ReadTasks(strings.NewReader(tc.tasks), "t.csv")
			require.NoError(t, err)
			err = (&trace.Trace{Nodes: nodes, Kinds: kinds, Tasks: tasks}).Check(tc.load)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// Whatever is in the file, reading either says what is wrong or gives demands
// that mean something.
func FuzzReadTasks(f *testing.F) {
	f.Add("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1,2,1,470,T4|P100\n")
	f.Add("num_gpu,gpu_milli,class,gpu_memory_mib\n2,1000,,\n1,5,offline,7\n")
	f.Add("\ufeffnum_gpu,gpu_milli\n1,\"1\n\"")
	f.Fuzz(func(t *testing.T, file string) {
		kinds, tasks, err := trace.ReadTasks(strings.NewReader(file), "f")
		if err != nil {
			return
		}
		for _, k := range tasks {
			require.Less(t, k, len(kinds))
		}
		for _, d := range kinds {
			require.GreaterOrEqual(t, int64(d.CPU), int64(0))
			require.GreaterOrEqual(t, int64(d.Memory), int64(0))
			for _, p := range d.Parts {
				require.Positive(t, p.Cards)
				if !p.Whole {
					require.Positive(t, int(p.Amount.Compute+p.Amount.Offline))
					require.LessOrEqual(t, p.Amount.Compute+p.Amount.Offline, placement.WholeCompute)
				}
			}
		}
	})
}

func FuzzReadNodes(f *testing.F) {
	f.Add("sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\n")
	f.Add("gpu,gpu_memory_mib\n8,81559\n0,\n")
	f.Fuzz(func(t *testing.T, file string) {
		nodes, err := trace.ReadNodes(strings.NewReader(file), "f")
		if err != nil {
			return
		}
		for i := range nodes {
			for j := range nodes[i].Cards {
				require.True(t, nodes[i].Cards[j].Empty())
				require.GreaterOrEqual(t, int64(nodes[i].Cards[j].Total.Memory), int64(0))
			}
		}
	})
}
