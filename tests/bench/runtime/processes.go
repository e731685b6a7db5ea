// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// start measures how long it takes to start count processes at once, in ms: the
// best of some runs in turn, with the runtime and without.
func (p place) start(ctx context.Context, count, times int, args ...string) (ours, bare float64, err error) {
	var all [2][]float64
	for range rounds {
		for i, box := range []*sandbox.Box{p.simulated.ours, p.simulated.bare} {
			command := append([]string{strconv.Itoa(count), strconv.Itoa(times)}, args...)
			lines, err := rig.Run(ctx, box, rig.Client("starts"), command...)
			if err != nil {
				return 0, 0, err
			}
			ns, ok := lines[len(lines)-1].Number("p50_ns")
			if !ok {
				return 0, 0, fmt.Errorf("read %q: it has no p50_ns", lines[len(lines)-1].Text)
			}
			all[i] = append(all[i], float64(ns)/1e6)
		}
	}
	return slices.Min(all[0]), slices.Min(all[1]), nil
}

// starts measures what the runtime adds to the start of programs.
func (p place) starts(ctx context.Context) ([]bench.Row, error) {
	var rows []bench.Row
	for _, s := range []struct {
		metric       string
		count, times int
		args         []string
		target       bench.Target
		reference    string
	}{
		{"start of a process without CUDA", 1, 100, []string{rig.Client("stranger")}, bench.AtMost(1), "a preloaded library 0.04 to 0.08"},
		{"start of a linked process that calls nothing", 1, 100, []string{rig.Client("begin"), "nothing"}, bench.AtMost(1), ""},
		{"start of a process with cuInit", 1, 100, []string{rig.Client("begin"), "init"}, bench.AtMost(1), "about 1.2 for HAMi-core and vgpu-manager"},
		{"start of a process with its first context", 1, 50, []string{rig.Client("begin"), "context"}, bench.AtMost(1), ""},
		{"300 processes with a context at once", 300, 1, []string{rig.Client("begin"), "context"}, bench.AtMost(1000), "100 at once: HAMi-core 11100 instead of 1200"},
	} {
		ours, bare, err := p.start(ctx, s.count, s.times, s.args...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, bench.Row{
			Metric: s.metric + ", added", Value: ours - bare, Unit: "ms", Target: s.target, Reference: s.reference,
			Source: source, Remark: fmt.Sprintf("with %.2f, without %.2f", ours, bare),
		})
	}
	return rows, nil
}

// kills is how many processes are killed to see how long their memory takes.
const kills = 300

// returns measures from SIGKILL until the ledger no longer charges the share.
func (p place) returns(ctx context.Context) ([]bench.Row, error) {
	ledger, err := rig.OpenLedger(ctx, p.share)
	if err != nil {
		return nil, err
	}
	defer ledger.Close() //nolint:errcheck // only looked at
	took := make([]time.Duration, 0, kills)
	for range kills {
		one, err := p.killOne(ledger)
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	var rows []bench.Row
	for _, percentile := range []int{50, 99, 100} {
		name := fmt.Sprintf("p%d", percentile)
		if percentile == 100 {
			name = "the longest"
		}
		rows = append(rows, bench.Row{
			Metric: fmt.Sprintf("memory of a killed process can be had again, %s of %d", name, kills),
			Value:  bench.Milliseconds(bench.Percentile(took, percentile)), Unit: "ms", Target: bench.AtMost(50),
			Reference: "HAMi-core: killed while it makes a context, the next start waits 329 s", Source: source,
		})
	}
	return rows, nil
}

func (p place) killOne(ledger *rig.Ledger) (time.Duration, error) {
	cmd := exec.Command(rig.Client("tenant"))
	cmd.Env = rig.Environment()
	victim, err := rig.Start(p.simulated.ours, cmd)
	if err != nil {
		return 0, err
	}
	for _, line := range []string{"init", "context 0", fmt.Sprint("take alloc ", 1024*rig.MiB)} {
		answer, err := victim.Ask(line)
		if err != nil {
			return 0, err
		}
		if answer.Values["result"] != "0" {
			return 0, fmt.Errorf("%s: %s", line, answer.Text)
		}
	}
	start := time.Now()
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	look := time.NewTicker(20 * time.Microsecond)
	defer look.Stop()
	for ledger.Charge() != 0 {
		if time.Since(start) > rig.Patience {
			return 0, fmt.Errorf("memory of a killed process is not back: %d bytes", ledger.Charge())
		}
		<-look.C
	}
	took := time.Since(start)
	victim.End() //nolint:errcheck // it was killed
	return took, nil
}
