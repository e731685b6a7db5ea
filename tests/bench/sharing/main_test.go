// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/rig"
)

func names(contenders []contender) []string {
	var out []string
	for _, c := range contenders {
		out = append(out, c.name)
	}
	return out
}

func TestWhoIsMeasured(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		args []string
		want []string
	}{
		"ours, when nothing is said":        {nil, []string{"ours"}},
		"the card's own turns":              {[]string{"-none"}, []string{"none"}},
		"ours beside the card's own turns":  {[]string{"-none", "-beside"}, []string{"ours", "none"}},
		"another runtime that is preloaded": {[]string{"-preload", "/x.so", "-name", "x"}, []string{"x"}},
		"another libcuda beside ours":       {[]string{"-library", "/x.so", "-beside"}, []string{"ours", "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := parse(row.args)
			require.NoError(t, err)
			require.Equal(t, row.want, names(o.contenders()))
			require.Equal(t, row.want[0] == "ours", o.contenders()[0].ours())
		})
	}
}

func TestFlagsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"nobody and another runtime":            {[]string{"-none", "-preload", "/x.so"}, "-none is without any runtime"},
		"beside whom":                           {[]string{"-beside"}, "-beside needs whom"},
		"no time":                               {[]string{"-seconds", "0"}, "-seconds: 0 is less than 1"},
		"no time to settle":                     {[]string{"-settling", "-1"}, "-settling: -1 is less than 1"},
		"arguments that are no flags":           {[]string{"-none", "short"}, `"short" is no flag`},
		"nothing of that name":                  {[]string{"-only", "zzz"}, `-only: nothing that would be measured is called "zzz": -list`},
		"nothing of that name in the selection": {[]string{"-short", "-only", "weights"}, "-list"},
		"a variable of whom":                    {[]string{"-env", "A=1"}, "-env is about another runtime"},
		"a variable of nobody":                  {[]string{"-none", "-env", "A=1"}, "-env is about another runtime"},
		"a file of whom":                        {[]string{"-file", "/a=/b"}, "-file is about another runtime"},
		"a name of whom":                        {[]string{"-name", "a"}, "-name is about another runtime"},
		"a variable without a value":            {[]string{"-preload", "/x.so", "-env", "A=1", "-env", "B"}, `-env: "B" has no name`},
		"a file for none":                       {[]string{"-preload", "/x.so", "-file", "/a"}, `-file: "/a" has no name`},
		"a file for nothing":                    {[]string{"-preload", "/x.so", "-file", "/a="}, `-file: "/a=" has no name`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := begin(t.Context(), append(row.args, "-list"))
			require.ErrorIs(t, err, errUsage)
			require.ErrorContains(t, err, row.says)
		})
	}
	_, err := parse([]string{"-preload", "/x.so", "-env", "EMPTY="})
	require.NoError(t, err)
}

func TestHelpIsNoError(t *testing.T) {
	t.Parallel()
	require.NoError(t, begin(t.Context(), []string{"-help"}))
}

func TestTracesSayWhoseTheyAre(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "traces")
	for range 2 { // the second one takes the place of the first
		require.NoError(t, openTraces(dir))
		w := &world{traces: dir}
		for _, name := range []string{"first", "second"} {
			w.scenario = name
			require.NoError(t, w.keep(contender{name: "ours"}, record{cards: [][]run{{{1, span{2, 3}}}}}, "log"))
		}
	}
	list, err := os.ReadFile(filepath.Join(dir, scenariosFile))
	require.NoError(t, err)
	require.Equal(t, "001-ours\tfirst\n002-ours\tsecond\n", string(list))
	runs, err := os.ReadFile(filepath.Join(dir, "002-ours-card0.csv"))
	require.NoError(t, err)
	require.Equal(t, "tenant,from_ns,to_ns\n1,2,3\n", string(runs))
}

func TestScenariosAreToldByNameWhileTheyAreMeasured(t *testing.T) {
	t.Parallel()
	w, seen := &world{}, ""
	_, err := w.measure(t.Context(), []scenario{{name: "this one", run: func(_ context.Context, w *world, _ contender) ([]bench.Row, error) {
		seen = w.scenario
		return nil, nil
	}}}, []contender{{name: "ours"}})
	require.NoError(t, err)
	require.Equal(t, "this one", seen)
}

func TestScenariosHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range scenarios(true) {
		require.False(t, seen[s.name], s.name)
		seen[s.name] = true
	}
	for _, s := range scenarios(false) {
		require.True(t, seen[s.name], s.name)
	}
	o, err := parse([]string{"-short", "-only", "^share error, 10/90"})
	require.NoError(t, err)
	chosen, err := o.chosen()
	require.NoError(t, err)
	require.Len(t, chosen, 1)
}

func TestPlaceholdersOfAnotherRuntime(t *testing.T) {
	t.Parallel()
	c := contender{preload: "/lib/x.so", env: []string{"LIMIT={cores}", "MEMORY={memory}m", "CACHE={dir}/cache-{tenant}"}}
	require.Equal(t, []string{"LD_PRELOAD=/lib/x.so", "LIMIT=30", "MEMORY=2048m", "CACHE=/tmp/r/cache-2"},
		c.environment("/tmp/r", 2, tenant{cores: 30}))
	require.Empty(t, contender{}.environment("/tmp/r", 0, tenant{}))
}

func TestMergePutsTheOthersFiguresBesideOurs(t *testing.T) {
	t.Parallel()
	ours := []bench.Row{{Metric: "a", Value: 1, Reference: "best 2", Source: "a paper"}, {Metric: "b", Value: 3}}
	theirs := []bench.Row{{Metric: "b", Value: 4.56789}, {Metric: "a", Value: 9}, {Metric: "c", Value: 5}}
	merged := merge(merge(nil, ours, "ours"), theirs, "theirs")
	require.Equal(t, []bench.Row{
		{Metric: "a", Value: 1, Reference: "best 2; theirs here 9", Source: "a paper"}, {Metric: "b", Value: 3, Reference: "theirs here 4.568", Source: "this run"},
	}, merged)
}

// scenarioOf is one with these rows, or this error.
func scenarioOf(name string, rows []bench.Row, err error) scenario {
	return scenario{name: name, run: func(context.Context, *world, contender) ([]bench.Row, error) {
		return slices.Clone(rows), err
	}}
}

func TestAFigureThatCannotBeTakenDoesNotEndTheRun(t *testing.T) {
	t.Parallel()
	good := []bench.Row{{Metric: "p50", Value: 1, Unit: "ms"}}
	nobody := fmt.Errorf("%w\nand a log", unmeasured("nobody woke"))
	rows, err := (&world{}).measure(t.Context(), []scenario{
		scenarioOf("first", good, nil), scenarioOf("second", nil, nobody), scenarioOf("third", good, nil),
	}, []contender{{name: "ours"}})
	require.NoError(t, err)
	require.Equal(t, []bench.Row{
		{Subject: "first", Metric: "p50", Value: 1, Unit: "ms"},
		{Metric: "second", Missing: "nobody woke"},
		{Subject: "third", Metric: "p50", Value: 1, Unit: "ms"},
	}, rows)
	require.Len(t, bench.Missed(rows), 1)
	require.NoError(t, bench.Report(io.Discard, "sharing", t.TempDir(), rows))

	rows, err = (&world{}).measure(t.Context(), []scenario{
		scenarioOf("first", good, nil), scenarioOf("second", nil, errUsage), scenarioOf("third", good, nil),
	}, []contender{{name: "ours"}})
	require.ErrorIs(t, err, errUsage)
	require.Len(t, rows, 1, "what was measured before is told")
}

func TestOnlyTheOtherOnesFigureCannotBeTaken(t *testing.T) {
	t.Parallel()
	ours := []bench.Row{{Subject: "s", Metric: "a", Value: 1, Unit: "ms"}}
	require.Equal(t, []bench.Row{{Subject: "s", Metric: "a", Value: 1, Unit: "ms", Reference: "theirs here not measured", Source: "this run"}},
		without(ours, "s", "theirs", "nobody woke"))
}

// Whether the tenant or the machine is the cause.
func TestWhyThereIsNothingToJudge(t *testing.T) {
	t.Parallel()
	rec := record{judged: span{0, 12 * time.Second}, lines: [][]rig.Line{nil}}
	require.EqualError(t, rec.nothing("wake", "at"), "no wake in the 12s that were watched")
	rec.lines[0] = []rig.Line{{Word: "wake", Values: map[string]string{"at": "1000"}, Text: "wake at=1000"}}
	rec.standstills = []span{{0, time.Second}}
	require.Empty(t, rec.moments(0, "wake", "at", 0))
	require.EqualError(t, rec.nothing("wake", "at"),
		"the machine stood still near each wake, of which there were 1; processors idle 0 %, stood still for 1000 ms")
}

func TestANOOfABusyMachineIsToBeMeasuredAgain(t *testing.T) {
	t.Parallel()
	const machine = "The machine's processors were idle for 15 % of the time; load now 3.25 4.25 3.14\n"
	require.Equal(t, machine, machineWas(15.2, "3.25 4.25 3.14", false))
	require.Regexp(t, "^"+machine+"Measure a NO of a busy machine again\n$", machineWas(15.2, "3.25 4.25 3.14", true))
}

func TestProcessorsThatAreIdle(t *testing.T) {
	t.Parallel()
	before, err := parseTicks("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n")
	require.NoError(t, err)
	after, err := parseTicks("cpu  150 0 100 900 50 0 0 0 0 0\n")
	require.NoError(t, err)
	require.InDelta(t, 50, after.idleSince(before), 1e-9)
	require.Zero(t, after.idleSince(after))
	_, err = parseTicks("intr 1 2 3")
	require.Error(t, err)
}
