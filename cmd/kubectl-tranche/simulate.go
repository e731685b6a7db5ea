// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tranche-dra/tranche/pkg/chart"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/replay"
	"github.com/tranche-dra/tranche/pkg/trace"
	"github.com/tranche-dra/tranche/pkg/whatif"
)

// maxSeeds is far more than figures get better by.
const maxSeeds = 1000

// simulation is the flags.
type simulation struct {
	nodes, tasks    string
	cluster, claims string
	count           int
	policies        []string
	load            float64
	seeds           string
	plot            string
	output          string
	json            bool
}

func newSimulate() *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Try placements out: a trace, or claims on a cluster as it is now",
		Long: "simulate replays a trace on an empty cluster, or tries on a cluster as it is now what would happen if\n" +
			"claims came, under several policies side by side. It says how much of the cards is allocated, and how\n" +
			"much of what is free is stranded: of no use to one more task of the same kind. Nothing is changed.\n\n" +
			"A trace is two CSV files with a header, in the columns of Alibaba's trace of GPU sharing. Nodes have gpu\n" +
			"(a number of cards), and may have sn, cpu_milli, memory_mib, model and gpu_memory_mib. Tasks have num_gpu\n" +
			"and gpu_milli (thousandths of a card), and may have cpu_milli, memory_mib, gpu_memory_mib, gpu_spec\n" +
			"(models that will do, divided by |) and class. All tasks arrive, and others drawn from them, until --load\n" +
			"is asked for, in random order; none leaves; one that does not fit is dropped.\n\n" +
			"A cluster is what kubectl prints of it, devicetaintrules included where there are some, and pods where those\n" +
			"that wait are to be tried. Device classes of the files are used beside and before those that come with\n" +
			"Tranche, the cluster's before those of --claims. What comes is claims, templates, and pods with those that\n" +
			"they use, or with limits of tranche.dev/gpu. Taints of cards and nodes count, and what tolerates them, and\n" +
			"nodeSelector; a claim without a pod goes to any node that has no taint. CPU and memory of the nodes are not\n" +
			"looked at, nor are policies that pods name: those of --policy are compared. Node affinity, constraints and\n" +
			"devices of other drivers are refused in --claims; what waits in the cluster and has such is left out and\n" +
			"listed.",
		Example: "  kubectl tranche simulate --nodes nodes.csv --tasks tasks.csv --plot allocation.svg\n" +
			"  kubectl get nodes,resourceslices,resourceclaims,deviceclasses -A -o json | kubectl tranche simulate --cluster - --claims claim.yaml --count 20",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.misplaced(cmd.Flags()); err != nil {
				return fmt.Errorf("check flags: %w", err)
			}
			return s.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.nodes, "nodes", "", "CSV `file` of the trace's nodes")
	f.StringVar(&s.tasks, "tasks", "", "CSV `file` of the trace's tasks")
	f.StringVar(&s.cluster, "cluster", "", "YAML or JSON `file` of a cluster's Nodes, ResourceSlices, ResourceClaims and DeviceClasses, - for standard input")
	f.StringVar(&s.claims, "claims", "", "YAML or JSON `file` of ResourceClaims, ResourceClaimTemplates and Pods to try (default those of --cluster that wait)")
	f.IntVar(&s.count, "count", 1, "how many of each claim or pod come")
	f.StringSliceVar(&s.policies, "policy", []string{"spread/binpack", "binpack", "spread", "binpack/spread", "fragmentation"},
		"`policies` to compare, each one among nodes and one among cards, or one word for both, of binpack, spread and fragmentation")
	f.Float64Var(&s.load, "load", 130, "`percent` of all compute that a trace is made to ask for")
	f.StringVar(&s.seeds, "seeds", "42-51", "seeds of a trace's replays: a `number`, a range, or several divided by commas")
	f.StringVar(&s.plot, "plot", "", "`file` to draw allocation against what was asked for into, ending in .svg or .png; of a trace only")
	f.StringVarP(&s.output, "output", "o", "table", "`form` of the answer: table or json")
	f.BoolVar(&s.json, "json", false, "the same as --output=json")
	return cmd
}

func (s *simulation) run(ctx context.Context, in io.Reader, out io.Writer) error {
	policies, err := s.check()
	if err != nil {
		return fmt.Errorf("check flags: %w", err)
	}
	if s.cluster != "" {
		return s.whatif(ctx, in, out, policies)
	}
	return s.replay(ctx, out, policies)
}

// misplaced refuses a flag that the kind of simulation has no use for.
func (s *simulation) misplaced(flags *pflag.FlagSet) error {
	if s.cluster == "" && flags.Changed("count") {
		return errors.New("--count goes with --cluster")
	}
	for _, name := range []string{"load", "seeds"} {
		if s.cluster != "" && flags.Changed(name) {
			return fmt.Errorf("--%s goes with --nodes and --tasks", name)
		}
	}
	return nil
}

func (s *simulation) check() ([]placement.Policies, error) {
	if s.json {
		s.output = "json"
	}
	ofTrace := s.nodes != "" || s.tasks != ""
	switch {
	case s.output != "table" && s.output != "json":
		return nil, fmt.Errorf("--output: %q is neither table nor json", s.output)
	case ofTrace == (s.cluster != ""):
		return nil, errors.New("either --nodes and --tasks, or --cluster is needed")
	case ofTrace && (s.nodes == "" || s.tasks == ""):
		return nil, errors.New("--nodes and --tasks go together")
	case ofTrace && s.claims != "":
		return nil, errors.New("--claims goes with --cluster")
	case s.cluster != "" && s.plot != "":
		return nil, errors.New("--plot goes with --nodes and --tasks")
	case !(s.load > 0 && s.load <= 10000): // not a number is refused, too
		return nil, fmt.Errorf("--load: %v is not above 0 and at most 10000 percent", s.load)
	case s.count < 1 || s.count > 1e6:
		return nil, fmt.Errorf("--count: %d is not from 1 to 1000000", s.count)
	case len(s.policies) == 0:
		return nil, errors.New("--policy: at least one is needed")
	}
	if _, err := plotFormat(s.plot); err != nil {
		return nil, err
	}
	policies := make([]placement.Policies, len(s.policies))
	for i, text := range s.policies {
		var err error
		if policies[i], err = placement.Parse(text); err != nil {
			return nil, fmt.Errorf("--policy: %w", err)
		}
	}
	return policies, nil
}

func plotFormat(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	format := strings.TrimPrefix(filepath.Ext(file), ".")
	if slices.Contains(chart.Formats(), format) {
		return format, nil
	}
	return "", fmt.Errorf("--plot: %q ends neither in .svg nor in .png", file)
}

func (s *simulation) replay(ctx context.Context, out io.Writer, policies []placement.Policies) error {
	seeds, err := parseSeeds(s.seeds)
	if err != nil {
		return fmt.Errorf("check flags: --seeds: %w", err)
	}
	t, err := trace.Open(s.nodes, s.tasks)
	if err != nil {
		return err
	}
	var plot *os.File
	if s.plot != "" { // opened before the work: that it cannot be written should not be learned after it
		if plot, err = os.OpenFile(s.plot, os.O_WRONLY|os.O_CREATE, 0o644); err != nil { //nolint:gosec // a picture may be read by everyone
			return fmt.Errorf("draw plot: %w", err)
		}
		defer plot.Close() //nolint:errcheck // closed by draw where it was written
	}
	summaries, err := replay.Compare(ctx, t, s.load/100, seeds, replay.Ours(policies...))
	if err != nil {
		return fmt.Errorf("replay %s on %s: %w", s.tasks, s.nodes, err)
	}
	report := replay.NewReport(t, s.load/100, seeds, summaries)
	write := report.WriteTable
	if s.output == "json" {
		write = report.WriteJSON
	}
	if err := write(out); err != nil || plot == nil {
		return err
	}
	return s.draw(plot, report)
}

func (s *simulation) draw(file *os.File, report replay.Report) error {
	format, err := plotFormat(s.plot)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("draw plot: %w", err)
	}
	return errors.Join(chart.Write(file, format, report), file.Close())
}

func (s *simulation) whatif(ctx context.Context, in io.Reader, out io.Writer, policies []placement.Policies) error {
	cluster, err := readObjects(s.cluster, in)
	if err != nil {
		return err
	}
	var comes *whatif.Objects
	if s.claims != "" {
		claims, err := readObjects(s.claims, in)
		if err != nil {
			return err
		}
		comes = &claims
	}
	report, err := whatif.Compare(ctx, &cluster, comes, s.count, policies)
	if err != nil {
		return err
	}
	if s.output == "json" {
		return report.WriteJSON(out)
	}
	return report.WriteTables(out)
}

func readObjects(file string, in io.Reader) (whatif.Objects, error) {
	if file == "-" {
		return whatif.Read(in, "standard input")
	}
	from, err := os.Open(file)
	if err != nil {
		return whatif.Objects{}, err
	}
	defer from.Close() //nolint:errcheck // it was only read
	return whatif.Read(from, file)
}

// parseSeeds reads "42-51", "7" or "1,2,10-12".
func parseSeeds(text string) ([]uint64, error) {
	var seeds []uint64
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 32)
		last, err2 := strconv.ParseUint(high, 10, 32)
		if err != nil || err2 != nil || last < first {
			return nil, fmt.Errorf("%q: numbers and ranges divided by commas are right, as in 42-51", text)
		}
		if uint64(len(seeds))+last-first >= maxSeeds {
			return nil, fmt.Errorf("%q are more than %d", text, maxSeeds)
		}
		for seed := first; seed <= last; seed++ {
			seeds = append(seeds, seed)
		}
	}
	return seeds, nil
}
