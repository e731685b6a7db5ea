// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/bench"
)

// Where targets and the figures of others are from.
const (
	ownTarget = "target of this project"
	measured  = "HAMi-core and vgpu-manager as measured by this project on the simulated card"
	xsched    = "XSched: OSDI 2025"
)

// scenario is something that is measured.
type scenario struct {
	name string
	// short: it is part of the selection.
	short bool
	run   func(context.Context, *world, contender) ([]bench.Row, error)
}

// kernel is a kind of work, as tests/clients/work takes it.
type kernel struct {
	name string
	work []string
}

func kernels(name, lengths string) kernel {
	return kernel{"kernels of " + name, []string{"kernels=" + lengths, "by=function"}}
}

func oneMillisecond() kernel { return kernels("1 ms", "1000000") }

func allKernels() []kernel {
	return []kernel{
		kernels("0.05 ms", "50000"), kernels("0.2 ms", "200000"), oneMillisecond(), kernels("5 ms", "5000000"), kernels("20 ms", "20000000"),
		{"kernels of 0.05 to 5 ms", []string{"kernels=50000,200000,1000000,5000000", "by=function", "batch=8"}},
		{"one function of 0.05 to 5 ms", []string{"kernels=50000,200000,1000000,5000000", "by=parameter", "batch=8"}},
	}
}

// division is shares of one policy and what each is to have.
type division struct {
	name   string
	policy share.Policy
	cores  []card.Percent
	want   []float64
}

func repeated[T any](value T, times int) []T {
	out := make([]T, times)
	for i := range out {
		out[i] = value
	}
	return out
}

func twentyThirtyFifty() division {
	return division{"20/30/50", share.GuaranteedBurst, []card.Percent{20, 30, 50}, []float64{20, 30, 50}}
}

func divisions() []division {
	return []division{
		twentyThirtyFifty(),
		{"10/90", share.GuaranteedBurst, []card.Percent{10, 90}, []float64{10, 90}},
		{"25/75", share.GuaranteedBurst, []card.Percent{25, 75}, []float64{25, 75}},
		{"five of 20", share.GuaranteedBurst, repeated[card.Percent](20, 5), repeated(20.0, 5)},
		{"16 equal", share.GuaranteedBurst, repeated[card.Percent](6, 16), repeated(6.25, 16)},
		{"fixed 20/30/50", share.Fixed, []card.Percent{20, 30, 50}, []float64{20, 30, 50}},
		{"weights 20/30/50", share.NativeBurst, []card.Percent{20, 30, 50}, []float64{20, 30, 50}},
		{"weights 20/60", share.NativeBurst, []card.Percent{20, 60}, []float64{25, 75}},
		{"four best-effort", share.BestEffort, repeated[card.Percent](0, 4), repeated(25.0, 4)},
	}
}

// scenarios are what is measured. With matrix every division is with all kernels, and
// otherwise one of them with all, and all of them with one.
func scenarios(matrix bool) []scenario {
	short := []string{
		"share error, 20/30/50, kernels of 1 ms", "share error, 10/90, kernels of 1 ms", "share error, 16 equal, kernels of 1 ms",
		"share error, 20/30/50, kernels of 0.05 ms", "share error, 20/30/50, kernels of 5 ms",
	}
	var all []scenario
	for _, d := range divisions() {
		for _, k := range allKernels() {
			if matrix || d.name == twentyThirtyFifty().name || k.name == oneMillisecond().name {
				s := d.scenario(k)
				s.short = slices.Contains(short, s.name)
				all = append(all, s)
			}
		}
	}
	all = append(all, different()...)
	all = append(all, limits()...)
	all = append(all, bursts()...)
	all = append(all, throughputs()...)
	all = append(all, onlines()...)
	return append(all, gangs(), gate())
}

func (d division) tenants(work ...string) []tenant {
	var out []tenant
	for _, cores := range d.cores {
		out = append(out, tenant{policy: d.policy, class: share.NoClass, cores: cores, work: work})
	}
	return out
}

func (d division) scenario(k kernel) scenario {
	return scenario{
		name: fmt.Sprintf("share error, %s, %s", d.name, k.name),
		run: func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.division(ctx, c, d.want, d.tenants(k.work...))
		},
	}
}

// division measures how far tenants of one card are from what they are to have.
func (w *world) division(ctx context.Context, c contender, want []float64, tenants []tenant) ([]bench.Row, error) {
	rec, err := w.play(ctx, c, w.length, onFirst(tenants...))
	if err != nil {
		return nil, err
	}
	return errorRows(rec, rec.cards[0], want), nil
}

// errorRows are the distances of runs from what is wanted, over windows of 1 s and,
// where they fit, 10 s.
func errorRows(rec record, runs []run, want []float64) []bench.Row {
	var rows []bench.Row
	got := parts(runs, len(want), rec.judged)
	for _, width := range []struct {
		seconds int
		step    time.Duration
		target  float64
	}{{1, 100 * time.Millisecond, 2}, {10, 500 * time.Millisecond, 0.5}} {
		all, which := rec.windows(time.Duration(width.seconds)*time.Second, width.step)
		if len(all) == 0 {
			continue
		}
		figure := over(all, func(s span) float64 { return farthest(parts(runs, len(want), s), want) })
		rows = append(rows, bench.Row{
			Metric: fmt.Sprintf("over %d s", width.seconds), Value: figure.worst, Unit: "points", Target: bench.AtMost(width.target),
			Reference: "XSched 0.25; 20/30/50: HAMi-core 10.1, vgpu-manager 11.5",
			Source:    ownTarget + "; " + xsched + "; " + measured,
			Remark: fmt.Sprintf("the worst %s, median %.2f; of the card %s, of what ran %s; %s",
				which, figure.median, list1(got), list1(scaled(got)), rec.machine()),
		})
	}
	return rows
}

// list1 is "19.9/29.8/49.9", or the lowest and the highest of many.
func list1(values []float64) string {
	var texts []string
	low, high := values[0], values[0]
	for _, v := range values {
		texts = append(texts, fmt.Sprintf("%.1f", v))
		low, high = min(low, v), max(high, v)
	}
	if len(values) > 5 {
		return fmt.Sprintf("%.1f to %.1f", low, high)
	}
	return strings.Join(texts, "/")
}

// different are divisions among tenants that work differently.
func different() []scenario {
	guaranteed := func(cores card.Percent, work ...string) tenant {
		return tenant{policy: share.GuaranteedBurst, class: share.NoClass, cores: cores, work: work}
	}
	short := oneMillisecond().work
	many := append([]string{"processes=8"}, short...)
	return []scenario{
		{"share error, one process of 50 beside eight of 50", true, func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.division(ctx, c, []float64{50, 50}, []tenant{guaranteed(50, short...), guaranteed(50, many...)})
		}},
		{"share error, kernels of 0.05 ms of 50 beside 20 ms of 50", false, func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.division(ctx, c, []float64{50, 50}, []tenant{
				guaranteed(50, kernels("", "50000").work...), guaranteed(50, kernels("", "20000000").work...),
			})
		}},
		{"share error, threads, graphs and copies of 20/30/50", false, func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.division(ctx, c, []float64{20, 30, 50}, []tenant{
				guaranteed(20, append([]string{"threads=3", "streams=2"}, short...)...),
				guaranteed(30, append([]string{"graph=1"}, short...)...),
				guaranteed(50, append([]string{"copy=4194304"}, short...)...),
			})
		}},
		{"share error, launch-bound 50 beside 50", false, func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.launchBound(ctx, c, []tenant{
				guaranteed(50, fmt.Sprint("kernels=", launched.Nanoseconds()), "by=function", "batch=1", "ahead=4",
					fmt.Sprint("think=", launchEvery.Nanoseconds())),
				guaranteed(50, short...),
			})
		}},
	}
}

const (
	// yieldAfter is how long a tenant may leave the card idle before it has to give it up.
	yieldAfter = 300 * time.Microsecond
	// launchEvery is how long a launch-bound tenant pauses after each launch of a kernel that takes
	// launched: the card is idle for the rest.
	launchEvery = 100 * time.Microsecond
	launched    = 50 * time.Microsecond
)

// launchBound is a division in which the first tenant leaves the card idle between
// its launches: time that it has the card is its own, used or not.
func (w *world) launchBound(ctx context.Context, c contender, tenants []tenant) ([]bench.Row, error) {
	rec, err := w.play(ctx, c, w.length, onFirst(tenants...))
	if err != nil {
		return nil, err
	}
	runs := pausing(occupied(rec.cards[0], yieldAfter), 0, launchEvery-launched)
	rows := errorRows(rec, runs, []float64{50, 50})
	for i := range rows {
		rows[i].Remark += "; used " + list1(parts(rec.cards[0], 2, rec.judged))
	}
	return rows, nil
}
