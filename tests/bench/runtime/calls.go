// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// rounds that are measured in turn with the runtime and without; the best of them
// counts, as others use the machine too.
const rounds = 5

// figure is one call: what is said of it, and what it may cost, in ns.
type figure struct {
	metric    string
	p50, p99  bench.Target
	reference string
}

const (
	source     = "target of this project; HAMi-core and vgpu-manager as measured by this project on the simulated driver"
	ledgerBest = "HAMi-core 900 to 1400, vgpu-manager 7000 to 10000"
)

// figures by the name that tests/clients/measure gives them.
func figures() []struct {
	name string
	figure
} {
	ledger50, ledger99 := bench.AtMost(300), bench.AtMost(1000)
	type named = struct {
		name string
		figure
	}
	return []named{
		{"launch", figure{"cuLaunchKernel", bench.AtMost(20), bench.Target{}, "HAMi-core 22 to 49, vgpu-manager 32 to 34"}},
		{"copy", figure{"cuMemcpyHtoDAsync, 4 KiB", bench.AtMost(5), bench.Target{}, ""}},
		{"pass", figure{"a call that is not gated (cuCtxGetCurrent)", bench.AtMost(5), bench.Target{}, ""}},
		{"entry", figure{"cuGetProcAddress", bench.Target{}, bench.Target{}, ""}},
		{"info", figure{"cuMemGetInfo", bench.Target{}, bench.Target{}, ""}},
		{"small", figure{"cuMemAlloc and cuMemFree, 4 KiB", ledger50, ledger99, ledgerBest}},
		{"large", figure{"cuMemAlloc and cuMemFree, 64 MiB", ledger50, ledger99, ledgerBest}},
		{"standing", figure{"the same with 1000 blocks allocated", ledger50, ledger99, "HAMi-core 4000 to 5000"}},
		{"async", figure{"cuMemAllocAsync and cuMemFreeAsync, 4 MiB", ledger50, ledger99, ""}},
		{"handle", figure{"cuMemCreate and cuMemRelease, 4 MiB", ledger50, ledger99, ""}},
	}
}

// times of calls in ns, by name: p50 and p99.
type times map[string][2]float64

// calls compares each call with the bare driver's. What counts is measured on the
// driver that does nothing, where the difference is the runtime's own time; what the
// simulated driver takes is told besides.
func (p place) calls(ctx context.Context) ([]bench.Row, error) {
	ours, bare, err := inTurn(ctx, p.hollow)
	if err != nil {
		return nil, err
	}
	simulated, without, err := inTurn(ctx, p.simulated)
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	for _, f := range figures() {
		for i, percentile := range []string{"p50", "p99"} {
			row := bench.Row{
				Metric: fmt.Sprintf("%s, added, %s", f.metric, percentile), Value: ours[f.name][i] - bare[f.name][i], Unit: "ns",
				Target: f.p50, Reference: f.reference,
				Source: source, Remark: fmt.Sprintf("simulated driver: with %.0f, without %.0f", simulated[f.name][i], without[f.name][i]),
			}
			if i == 1 {
				row.Target, row.Reference = f.p99, ""
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// gated compares launches on a card that has another share, so that they are under a lease.
func (p place) gated(ctx context.Context) ([]bench.Row, error) {
	ours, bare, err := inTurn(ctx, p.leased)
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	for _, f := range figures() {
		if f.name != "launch" && f.name != "copy" {
			continue
		}
		rows = append(rows, bench.Row{
			Metric: f.metric + " under a lease, added, p50", Value: ours[f.name][0] - bare[f.name][0], Unit: "ns", Target: f.p50,
			Reference: f.reference, Source: source,
		})
	}
	return rows, nil
}

// inTurn measures with the runtime and without it by turns.
func inTurn(ctx context.Context, p pair, args ...string) (ours, bare times, err error) {
	all := map[*sandbox.Box]map[string][2][]float64{p.ours: {}, p.bare: {}}
	for range rounds {
		for box, into := range all {
			lines, err := rig.Run(ctx, box, rig.Client("measure"), args...)
			if err != nil {
				return nil, nil, err
			}
			if err := collect(into, lines); err != nil {
				return nil, nil, err
			}
		}
	}
	return best(all[p.ours]), best(all[p.bare]), nil
}

func collect(into map[string][2][]float64, lines []rig.Line) error {
	for _, line := range lines {
		var name string
		if _, err := fmt.Sscanf(line.Text, "time %s", &name); err != nil {
			continue
		}
		of := into[name]
		for i, key := range []string{"p50_ps", "p99_ps"} {
			ps, err := strconv.ParseFloat(line.Values[key], 64)
			if err != nil {
				return fmt.Errorf("read %q: %w", line.Text, err)
			}
			of[i] = append(of[i], ps/1000)
		}
		into[name] = of
	}
	return nil
}

func best(all map[string][2][]float64) times {
	out := times{}
	for name, of := range all {
		out[name] = [2]float64{slices.Min(of[0]), slices.Min(of[1])}
	}
	return out
}

// contended measures what several processes of one share do to each other.
func (p place) contended(ctx context.Context) ([]bench.Row, error) {
	var rows []bench.Row
	for _, processes := range []int{2, 4} {
		others := strconv.Itoa(processes - 1)
		ours, bare, err := inTurn(ctx, p.hollow, others)
		if err != nil {
			return nil, err
		}
		simulated, without, err := inTurn(ctx, p.simulated, others)
		if err != nil {
			return nil, err
		}
		const name = "contended"
		for i, percentile := range []string{"p50", "p99"} {
			rows = append(rows, bench.Row{
				Metric: fmt.Sprintf("cuMemAlloc and cuMemFree, 64 MiB, %d processes at it, added, %s", processes, percentile),
				Value:  ours[name][i] - bare[name][i], Unit: "ns",
				Remark: fmt.Sprintf("simulated driver: with %.0f, without %.0f", simulated[name][i], without[name][i]),
			})
		}
	}
	return rows, nil
}
