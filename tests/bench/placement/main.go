// SPDX-License-Identifier: Apache-2.0

// Command placement measures how much of a cluster's compute the policies hand
// out, by the protocol of the FGD paper (USENIX ATC 2023) and on its published
// trace of a production cluster: ours beside those that the paper compares,
// written anew here, and beside the figures that it published.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/replay"
	"github.com/tranche-dra/tranche/pkg/trace"
	"github.com/tranche-dra/tranche/tests/bench"
)

const (
	// What is asked for, as a part of all compute.
	load      = 1.3
	firstSeed = 42

	nodesFile   = "openb_node_list_gpu_node.csv"
	tasksBefore = "openb_pod_list_"
	tasksAfter  = ".csv"

	source = "FGD, USENIX ATC 2023"
)

const (
	// The trace is too large for this repository; a part of it is there.
	besideRepository = "../shared/data/openb"
	sampleDir        = "tests/testdata/openb"

	howToGet = "the files " + nodesFile + " and " + tasksBefore + "*" + tasksAfter +
		" of cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata); put them into a directory DIR, and give -data DIR (make: PLACEMENTFLAGS='-data DIR')"
)

// errData: there is nothing to replay.
var errData = errors.New("no trace, which is " + howToGet)

func main() {
	data := flag.String("data", "", "directory of the published trace")
	out := flag.String("out", "build/bench", "directory of the report")
	only := flag.String("traces", "", "traces to replay, divided by commas; all that the directory has, if empty")
	seeds := flag.Int("seeds", 10, "replays of each")
	flag.Parse()
	in, err := find(*data, besideRepository, sampleDir)
	if err == nil {
		err = in.keep(*only)
	}
	if err == nil {
		err = run(os.Stdout, in, *out, *seeds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench placement:", err)
		os.Exit(1)
	}
}

// input is what is replayed.
type input struct {
	dir, nodes string
	variants   []variant
	// sample: a small part, of which nothing is published and nothing follows.
	sample bool
}

// variant is a list of tasks.
type variant struct{ name, file string }

// find takes the directory that is named, else the trace where it may be, else the
// sample.
func find(named, beside, sample string) (input, error) {
	if named != "" {
		return traceIn(named)
	}
	if _, err := os.Stat(beside); err == nil {
		return traceIn(beside)
	}
	return input{sample, filepath.Join(sample, "nodes.csv"), []variant{{"sample", filepath.Join(sample, "tasks.csv")}}, true}, nil
}

func traceIn(dir string) (input, error) {
	in := input{dir: dir, nodes: filepath.Join(dir, nodesFile)}
	files, err := filepath.Glob(filepath.Join(dir, tasksBefore+"*"+tasksAfter))
	if err != nil {
		return in, err
	}
	if _, err := os.Stat(in.nodes); err != nil || len(files) == 0 {
		return in, fmt.Errorf("look into %s: %w", dir, errData)
	}
	for _, file := range files {
		in.variants = append(in.variants, variant{strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), tasksBefore), tasksAfter), file})
	}
	return in, nil
}

// keep drops all variants but those that are named, divided by commas.
func (in *input) keep(only string) error {
	if only == "" {
		return nil
	}
	var kept []variant
	var names []string
	for _, v := range in.variants {
		names = append(names, v.name)
	}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("look into %s: there is no trace %q, but %s", in.dir, name, strings.Join(names, ", "))
		}
		kept = append(kept, in.variants[i])
	}
	in.variants = kept
	return nil
}

func run(w io.Writer, in input, out string, seeds int) error {
	var list []uint64
	for i := range seeds {
		list = append(list, uint64(firstSeed+i))
	}
	var rows []bench.Row
	var table strings.Builder
	header(&table)
	for _, v := range in.variants {
		t, err := trace.Open(in.nodes, v.file)
		if err != nil {
			return err
		}
		start := time.Now()
		results, err := replay.Compare(context.Background(), t, load, list, rivals())
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d policies, %d replays each, in %.1f s\n", v.name, len(results), seeds, time.Since(start).Seconds())
		lines(&table, v.name, results)
		rows = append(rows, rowsOf(v.name, results, in.sample)...)
	}
	text, err := aligned(table.String())
	if err != nil {
		return err
	}
	if in.sample {
		fmt.Fprintf(w, "This is a small sample, too small to say which policy is better. The whole trace is %s\n\n", howToGet)
	}
	fmt.Fprintf(w, "Allocated, %% of all compute, mean of %d replays; 100 and 130 %% of it asked for\n\n%s\n", seeds, text)
	if err := bench.Report(w, "placement", out, rows); err != nil {
		return err
	}
	if missed := bench.Missed(rows); len(missed) > 0 {
		return fmt.Errorf("%d figures miss their target, the first is: %s", len(missed), missed[0].Metric)
	}
	return nil
}

func rivals() []replay.Rival {
	fragmentation := placement.Policies{Node: placement.Fragmentation, Card: placement.Fragmentation}
	binpack := placement.Policies{Node: placement.Binpack, Card: placement.Binpack}
	return append([]replay.Rival{
		{Name: "Random", Make: random},
		{Name: "DotProd", Make: dotProduct},
		{Name: "Clustering", Make: newClustering},
		{Name: "Packing", Make: packing},
		{Name: "BestFit", Make: bestFit},
		{Name: "FGD", Make: newFGD},
	}, replay.Ours(placement.Default(), binpack, fragmentation)...)
}

// published is what the paper's policies allocated of each trace with 130 % asked
// for, means of ten replays, in percent.
var published = map[string]map[string]float64{
	"default":    {"Random": 87.47, "DotProd": 90.85, "Clustering": 91.88, "Packing": 92.00, "BestFit": 93.08, "FGD": 95.39},
	"gpushare40": {"Random": 86.00, "DotProd": 89.56, "Clustering": 90.02, "Packing": 90.03, "BestFit": 91.69, "FGD": 94.15},
	"gpuspec10":  {"Random": 87.43, "DotProd": 90.39, "Clustering": 92.18, "Packing": 92.46, "BestFit": 93.31, "FGD": 94.95},
	"cpu100":     {"Random": 89.11, "DotProd": 91.95, "Clustering": 92.64, "Packing": 92.72, "BestFit": 93.44, "FGD": 95.35},
	"multigpu20": {"Random": 88.69, "DotProd": 92.06, "Clustering": 93.56, "Packing": 93.71, "BestFit": 93.93, "FGD": 95.65},
}

func header(w io.Writer) {
	names, origins := "TRACE\t", "\t"
	for _, r := range rivals() {
		names += "\t" + r.Name
		origins += "\t" + origin(r.Name)
	}
	fmt.Fprintf(w, "%s\n%s\n", names, origins)
}

// origin tells the paper's policies, which are written anew here, from ours.
func origin(policy string) string {
	if _, theirs := published["default"][policy]; theirs {
		return "written anew"
	}
	return "ours"
}

func lines(w io.Writer, name string, results []replay.Summary) {
	line := func(what string, cell func(s *replay.Summary) (float64, bool)) {
		fmt.Fprintf(w, "%s\t%s", name, what)
		for i := range results {
			if v, known := cell(&results[i]); known {
				fmt.Fprintf(w, "\t%.2f", v)
			} else {
				fmt.Fprint(w, "\t-")
			}
		}
		fmt.Fprintln(w)
	}
	line("at 100 %", func(s *replay.Summary) (float64, bool) { return 100 * s.AtFull, true })
	line("at 130 %", func(s *replay.Summary) (float64, bool) { return 100 * s.AtEnd, true })
	if published[name] == nil {
		return
	}
	line("at 130 %, published", func(s *replay.Summary) (float64, bool) {
		v, known := published[name][s.Policy]
		return v, known
	})
}

func aligned(text string) (string, error) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	if _, err := io.WriteString(w, text); err != nil {
		return "", err
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return out.String(), nil
}

// rowsOf has our fragmentation beside the better of what was published of FGD and
// what FGD reaches here. A sample has no targets.
func rowsOf(name string, results []replay.Summary, sample bool) []bench.Row {
	var rows []bench.Row
	best := published[name]["FGD"]
	for i := range results {
		s := &results[i]
		if s.Policy == "FGD" {
			best = max(best, 100*s.AtEnd)
		}
		row := bench.Row{Metric: fmt.Sprintf("%s, %s, %s, 130 %% asked for", name, s.Policy, origin(s.Policy)), Value: 100 * s.AtEnd, Unit: "%"}
		if v, known := published[name][s.Policy]; known {
			row.Reference, row.Source = fmt.Sprintf("published %.2f", v), source
		}
		if s.Policy == string(placement.Fragmentation) && !sample {
			row.Target, row.Source = bench.AtLeast(best), source+", and FGD as written here"
		}
		rows = append(rows, row)
	}
	return rows
}
