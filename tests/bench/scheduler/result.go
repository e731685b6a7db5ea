// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/testutil"

	"github.com/tranche-dra/tranche/tests/bench"
)

// result is what was measured of one scheduler, over one burst or several.
type result struct {
	// pods were bound in the time taken, after the first of each burst, for the
	// scheduler's cpu time.
	pods      int
	took, cpu time.Duration
	// attempts at pods that were bound, of every burst, from the queue to the
	// binding; algorithm is the part for which all other pods wait. retries is
	// how many attempts failed.
	attempts, algorithm testutil.HistogramVec
	retries             uint64
	// memory is the most that the scheduler has had, in bytes.
	memory float64
}

func (r *result) add(other *result) {
	r.pods, r.took, r.cpu = r.pods+other.pods, r.took+other.took, r.cpu+other.cpu
	r.attempts = append(r.attempts, other.attempts...)
	r.algorithm = append(r.algorithm, other.algorithm...)
	r.retries += other.retries
	r.memory = max(r.memory, other.memory)
}

func (r *result) podsPerSecond() float64 { return float64(r.pods) / r.took.Seconds() }

// read takes over what the scheduler says of itself.
func (r *result) read(ctx context.Context, p *process) error {
	families, err := p.metrics(ctx)
	if err != nil {
		return err
	}
	const name = "scheduler_scheduling_attempt_duration_seconds"
	for _, m := range families[name].GetMetric() {
		if testutil.LabelsMatch(m, map[string]string{"result": "scheduled"}) {
			r.attempts = append(r.attempts, &testutil.Histogram{Histogram: m.GetHistogram()})
		} else {
			r.retries += m.GetHistogram().GetSampleCount()
		}
	}
	for _, m := range families["scheduler_scheduling_algorithm_duration_seconds"].GetMetric() {
		r.algorithm = append(r.algorithm, &testutil.Histogram{Histogram: m.GetHistogram()})
	}
	if err := errors.Join(r.attempts.Validate(), r.algorithm.Validate()); err != nil {
		return fmt.Errorf("read histograms: %w", err)
	}
	if counted := r.attempts.GetAggregatedSampleCount(); counted <= uint64(r.pods) { // pods leaves the first one out
		return fmt.Errorf("read %s: %d attempts for %d pods", name, counted, r.pods+1)
	}
	r.memory = gauge(families["process_resident_memory_bytes"])
	return nil
}

func gauge(family *dto.MetricFamily) float64 {
	for _, m := range family.GetMetric() {
		return m.GetGauge().GetValue()
	}
	return 0
}

// figure is one thing that is told of every scheduler.
type figure struct {
	name, unit string
	of         func(*result) float64
	// better is how the ratio to the stock scheduler should be; nil is any.
	better func(float64) bench.Target
}

func figures() []figure {
	milliseconds := func(seconds float64) float64 { return seconds * 1000 }
	attempt := func(q float64) func(*result) float64 {
		return func(r *result) float64 { return milliseconds(r.attempts.Quantile(q)) }
	}
	algorithm := func(q float64) func(*result) float64 {
		return func(r *result) float64 { return milliseconds(r.algorithm.Quantile(q)) }
	}
	return []figure{
		{"pods scheduled", "pods/s", (*result).podsPerSecond, bench.AtLeast},
		{"attempt with binding, mean", "ms", func(r *result) float64 { return milliseconds(r.attempts.Average()) }, bench.AtMost},
		{"attempt with binding, p50", "ms", attempt(0.5), bench.AtMost},
		{"attempt with binding, p99", "ms", attempt(0.99), bench.AtMost},
		{"attempt without binding, mean", "ms", func(r *result) float64 { return milliseconds(r.algorithm.Average()) }, bench.AtMost},
		{"attempt without binding, p50", "ms", algorithm(0.5), bench.AtMost},
		{"attempt without binding, p99", "ms", algorithm(0.99), bench.AtMost},
		{"CPU time of the scheduler for a pod", "ms", func(r *result) float64 { return bench.Milliseconds(r.cpu) / float64(r.pods) }, nil},
		{"memory of the scheduler after a burst", "MiB", func(r *result) float64 { return r.memory / (1 << 20) }, nil},
		{"attempts that failed", "attempts", func(r *result) float64 { return float64(r.retries) }, nil},
	}
}

// rows has each figure of each scheduler, and of ours by how much it differs.
func rows(o options, results map[string]*result) []bench.Row {
	source := fmt.Sprintf("%d nodes of %d cards, %d shares held, %d bursts of %d pods", o.nodes, o.cards, o.shares, o.rounds, o.burst)
	var all []bench.Row
	for _, f := range figures() {
		for _, name := range slices.DeleteFunc([]string{stock, tranche}, func(name string) bool { return results[name] == nil }) {
			all = append(all, bench.Row{Metric: fmt.Sprintf("%s: %s", f.name, name), Value: f.of(results[name]), Unit: f.unit, Source: source})
		}
		reference, ours := results[stock], results[tranche]
		if reference == nil || ours == nil || f.of(reference) == 0 {
			continue
		}
		ratio := bench.Row{Metric: f.name + ": tranche to stock", Value: f.of(ours) / f.of(reference), Unit: "times", Source: source}
		if f.better != nil {
			ratio.Target = f.better(1)
		}
		all = append(all, ratio)
	}
	return all
}
