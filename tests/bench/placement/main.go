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

// errData: there is nothing to replay.
var errData = errors.New("no trace: put " + nodesFile + " and " + tasksBefore + "*" + tasksAfter +
	" of Alibaba's cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata) into a directory, and name it with -data")

func main() {
	data := flag.String("data", "../shared/data/openb", "directory of the published trace")
	out := flag.String("out", "build/bench", "directory of the report")
	only := flag.String("traces", "", "traces to replay, divided by commas; all that the directory has, if empty")
	seeds := flag.Int("seeds", 10, "replays of each")
	flag.Parse()
	if err := run(os.Stdout, *data, *out, *only, *seeds); err != nil {
		fmt.Fprintln(os.Stderr, "bench placement:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, data, out, only string, seeds int) error {
	names, err := tracesIn(data, only)
	if err != nil {
		return err
	}
	var list []uint64
	for i := range seeds {
		list = append(list, uint64(firstSeed+i))
	}
	var rows []bench.Row
	var table strings.Builder
	header(&table)
	for _, name := range names {
		t, err := trace.Open(filepath.Join(data, nodesFile), filepath.Join(data, tasksBefore+name+tasksAfter))
		if err != nil {
			return err
		}
		start := time.Now()
		results, err := replay.Compare(context.Background(), t, load, list, rivals())
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d policies, %d replays each, in %.1f s\n", name, len(results), seeds, time.Since(start).Seconds())
		lines(&table, name, results)
		rows = append(rows, rowsOf(name, results)...)
	}
	text, err := aligned(table.String())
	if err != nil {
		return err
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

func tracesIn(data, only string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(data, tasksBefore+"*"+tasksAfter))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(data, nodesFile)); err != nil || len(files) == 0 {
		return nil, fmt.Errorf("look into %s: %w", data, errData)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), tasksBefore), tasksAfter))
	}
	if only == "" {
		return names, nil
	}
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("look into %s: there is no trace %q, but %s", data, name, strings.Join(names, ", "))
		}
	}
	return wanted, nil
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
	fmt.Fprint(w, "TRACE\t")
	for _, r := range rivals() {
		fmt.Fprintf(w, "\t%s", r.Name)
	}
	fmt.Fprintln(w)
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
	line("published", func(s *replay.Summary) (float64, bool) {
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
// what FGD reaches here.
func rowsOf(name string, results []replay.Summary) []bench.Row {
	var rows []bench.Row
	best := published[name]["FGD"]
	for i := range results {
		s := &results[i]
		if s.Policy == "FGD" {
			best = max(best, 100*s.AtEnd)
		}
		row := bench.Row{Metric: fmt.Sprintf("%s, %s, 130 %% asked for", name, s.Policy), Value: 100 * s.AtEnd, Unit: "%"}
		if v, known := published[name][s.Policy]; known {
			row.Reference, row.Source = fmt.Sprintf("published %.2f", v), source
		}
		if s.Policy == string(placement.Fragmentation) {
			row.Target, row.Source = bench.AtLeast(best), source+", and FGD as written here"
		}
		rows = append(rows, row)
	}
	return rows
}
