// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/bench"
)

// service is an online tenant: requests that come by chance.
type service struct {
	name string
	work []string
	// times is how many times as long as others it is watched, to have requests enough.
	times int
}

// Both keep the card busy for about a fifth of the time.
func services() []service {
	return []service{
		{"requests of 2 ms", []string{"rate=100", "kernels=500000", "by=function", "batch=4"}, 1},
		{"requests of 10 ms", []string{"rate=20", "kernels=500000", "by=function", "batch=20"}, 2},
	}
}

// onlines measure what offline work does to the latency of online requests.
func onlines() []scenario {
	var all []scenario
	five := kernels("5 ms", "5000000")
	many := kernel{"eight processes, " + five.name, append([]string{"processes=8"}, five.work...)}
	for _, s := range services() {
		for _, k := range []kernel{kernels("0.1 ms", "100000"), oneMillisecond(), five, kernels("20 ms", "20000000"), many} {
			all = append(all, scenario{
				fmt.Sprintf("online %s beside offline %s", s.name, k.name), s.times == 1 && k.name == oneMillisecond().name,
				func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
					return w.online(ctx, c, s, k)
				},
			})
		}
	}
	return all
}

// latencies are how long requests took, from when they were due.
func latencies(requests []span) []time.Duration {
	var out []time.Duration
	for _, r := range requests {
		out = append(out, r.length())
	}
	return out
}

func (s service) tenant() tenant { return tenant{share.GuaranteedBurst, share.Online, 50, s.work} }

// undisturbed is the service on the bare card, with nobody beside it. It is played
// once.
func (w *world) undisturbed(ctx context.Context, s service) (record, error) {
	if rec, ok := w.alone[s.name]; ok {
		return rec, nil
	}
	rec, err := w.play(ctx, contender{name: "none", bare: true}, w.times(s.times), onFirst(s.tenant()))
	if err == nil {
		w.alone[s.name] = rec
	}
	return rec, err
}

// online plays the same requests undisturbed and beside offline work.
func (w *world) online(ctx context.Context, c contender, s service, k kernel) ([]bench.Row, error) {
	alone, err := w.undisturbed(ctx, s)
	if err != nil {
		return nil, err
	}
	beside, err := w.play(ctx, c, w.times(s.times), onFirst(s.tenant(), tenant{share.BestEffort, share.Offline, 100, k.work}))
	if err != nil {
		return nil, err
	}
	before, after := latencies(alone.requests(0, "due")), latencies(beside.requests(0, "due"))
	if len(before) == 0 {
		return nil, alone.nothing("request", "due")
	}
	if len(after) == 0 {
		return nil, beside.nothing("request", "due")
	}
	var rows []bench.Row
	for _, p := range []int{50, 99} {
		was, is := bench.Milliseconds(bench.Percentile(before, p)), bench.Milliseconds(bench.Percentile(after, p))
		row := bench.Row{
			Metric: fmt.Sprintf("latency added, p%d", p), Value: 100 * (is/was - 1), Unit: "%",
			Source: ownTarget,
			Remark: fmt.Sprintf("%.2f ms instead of %.2f ms, %d requests; %s; alone: %s", is, was, len(after),
				beside.machine(), alone.machine()),
		}
		if p == 99 {
			row.Reference = "Hummingbird < 1, Tally 7.2, XSched 13"
			row.Source += "; Hummingbird: arXiv 2601.04071, 2026; Tally: ASPLOS 2025; " + xsched
			if strings.HasSuffix(k.name, "0.1 ms") || k.name == oneMillisecond().name {
				row.Target = bench.AtMost(7)
			}
		}
		rows = append(rows, row)
	}
	return append(rows, stops(beside, k)...), nil
}

// stops are how fast offline work gives way, and how soon it goes on.
func stops(rec record, k kernel) []bench.Row {
	own, others := of(rec.cards[0], 0), of(rec.cards[0], 1)
	requests := rec.requests(0, "submit")
	gets, ends := pauses(own, others, requests)
	goes := resumes(others, rec.spans(0, "request", "submit", "done"))
	got := parts(rec.cards[0], 2, rec.judged)
	var rows []bench.Row
	for _, of := range []struct {
		metric    string
		times     []time.Duration
		reference string
		missing   string
	}{
		{"request gets the card", gets, "qGPU 1", "no request came while offline work had the card"},
		{"offline work has stopped", ends, "qGPU 1", "no request came while offline work had the card"},
		{"offline work goes on", goes, "qGPU 100", "offline work had the card between no two requests"},
	} {
		printHistogram(fmt.Sprintf("%s, %s", of.metric, k.name), of.times)
		for _, p := range []int{50, 99} {
			row := bench.Row{
				Metric: fmt.Sprintf("%s, p%d", of.metric, p), Value: bench.Milliseconds(bench.Percentile(of.times, p)), Unit: "ms",
				Reference: of.reference, Source: "qGPU: Tencent Cloud",
				Remark: fmt.Sprintf("%d times, the longest %.2f ms", len(of.times), bench.Milliseconds(bench.Percentile(of.times, 100))),
			}
			if len(of.times) == 0 {
				row.Remark, row.Missing = "", of.missing+"; "+rec.machine()
			}
			rows = append(rows, row)
		}
	}
	return append(rows, bench.Row{
		Metric: "part of the card that offline work has", Value: got[1], Unit: "%",
		Remark: fmt.Sprintf("online work has %.1f %%; %s", got[0], rec.machine()),
	})
}

// printHistogram prints how often times were how long.
func printHistogram(name string, times []time.Duration) {
	counts := histogram(times)
	fmt.Fprintf(os.Stdout, "%s, %d times:", name, len(times))
	for i, end := range steps() {
		fmt.Printf("  <=%s %d", end, counts[i])
	}
	fmt.Printf("  more %d\n", counts[len(counts)-1])
}
