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

const attemptMetric = "scheduler_scheduling_attempt_duration_seconds"

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
	// refused are attempts at pods that fit nowhere.
	refused testutil.HistogramVec
	// memory is the most that the scheduler has had, in bytes.
	memory float64
}

func (r *result) add(other *result) {
	r.pods, r.took, r.cpu = r.pods+other.pods, r.took+other.took, r.cpu+other.cpu
	r.attempts = append(r.attempts, other.attempts...)
	r.algorithm = append(r.algorithm, other.algorithm...)
	r.refused = append(r.refused, other.refused...)
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
	for _, m := range families[attemptMetric].GetMetric() {
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
		return fmt.Errorf("read %s: %d attempts for %d pods", attemptMetric, counted, r.pods+1)
	}
	r.memory = gauge(families["process_resident_memory_bytes"])
	return nil
}

// readRefused is for when pods that fit nowhere have been tried. Where some of the
// burst were refused at first they are among them, which retries tells.
func (r *result) readRefused(ctx context.Context, p *process) error {
	families, err := p.metrics(ctx)
	if err != nil {
		return err
	}
	for _, m := range families[attemptMetric].GetMetric() {
		if testutil.LabelsMatch(m, map[string]string{"result": "unschedulable"}) {
			r.refused = append(r.refused, &testutil.Histogram{Histogram: m.GetHistogram()})
		}
	}
	return r.refused.Validate()
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
	type attempts = func(*result) testutil.HistogramVec
	mean := func(of attempts) func(*result) float64 {
		return func(r *result) float64 { return of(r).Average() * 1000 }
	}
	quantile := func(q float64, of attempts) func(*result) float64 {
		return func(r *result) float64 { return of(r).Quantile(q) * 1000 }
	}
	whole := func(r *result) testutil.HistogramVec { return r.attempts }
	algorithm := func(r *result) testutil.HistogramVec { return r.algorithm }
	refused := func(r *result) testutil.HistogramVec { return r.refused }
	return []figure{
		{"pods scheduled", "pods/s", (*result).podsPerSecond, bench.AtLeast},
		{"attempt with binding, mean", "ms", mean(whole), bench.AtMost},
		{"attempt with binding, p50", "ms", quantile(0.5, whole), bench.AtMost},
		{"attempt with binding, p99", "ms", quantile(0.99, whole), bench.AtMost},
		{"attempt without binding, mean", "ms", mean(algorithm), bench.AtMost},
		{"attempt without binding, p50", "ms", quantile(0.5, algorithm), bench.AtMost},
		{"attempt without binding, p99", "ms", quantile(0.99, algorithm), bench.AtMost},
		{"attempt that finds no room, mean", "ms", mean(refused), bench.AtMost},
		{"attempt that finds no room, p99", "ms", quantile(0.99, refused), bench.AtMost},
		{"CPU time of the scheduler for a pod", "ms", func(r *result) float64 { return bench.Milliseconds(r.cpu) / float64(r.pods) }, nil},
		{"memory of the scheduler after a burst", "MiB", func(r *result) float64 { return r.memory / (1 << 20) }, nil},
		{"attempts at pods of the burst that failed", "attempts", func(r *result) float64 { return float64(r.retries) }, nil},
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
