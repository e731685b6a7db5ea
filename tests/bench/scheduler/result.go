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
	// steady are attempts at pods that came one after the other.
	steady testutil.HistogramVec
	// refused are attempts at pods that fit nowhere.
	refused testutil.HistogramVec
	// memory is the most that the scheduler has had, in bytes.
	memory float64
}

func (r *result) add(other *result) {
	r.pods, r.took, r.cpu = r.pods+other.pods, r.took+other.took, r.cpu+other.cpu
	r.attempts = append(r.attempts, other.attempts...)
	r.algorithm = append(r.algorithm, other.algorithm...)
	r.steady = append(r.steady, other.steady...)
	r.refused = append(r.refused, other.refused...)
	r.retries += other.retries
	r.memory = max(r.memory, other.memory)
}

func (r *result) podsPerSecond() float64 { return float64(r.pods) / r.took.Seconds() }

// read takes over what the scheduler says of itself, once it has counted all
// pods: it does so some time after binding them.
func (r *result) read(ctx context.Context, p *process) error {
	return until(ctx, 10*time.Second, "all attempts are counted", func(ctx context.Context) error {
		families, err := p.metrics(ctx)
		if err != nil {
			return err
		}
		return r.take(families)
	})
}

func (r *result) take(families map[string]*dto.MetricFamily) error {
	r.attempts, r.algorithm, r.retries = nil, nil, 0
	for _, m := range families[attemptMetric].GetMetric() {
		if !testutil.LabelsMatch(m, successful) {
			r.retries += m.GetHistogram().GetSampleCount()
		}
	}
	r.attempts = attemptsOf(families, successful)
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

// readSteady is for when pods have come one after the other: whatever succeeded
// after the burst.
func (r *result) readSteady(ctx context.Context, p *process, pods int) error {
	return until(ctx, time.Minute, "all attempts are counted", func(ctx context.Context) error {
		families, err := p.metrics(ctx)
		if err != nil {
			return err
		}
		r.steady, err = since(attemptsOf(families, successful), r.attempts)
		if err != nil {
			return err
		}
		if counted := r.steady.GetAggregatedSampleCount(); counted < uint64(pods) {
			return fmt.Errorf("read %s: %d attempts for %d pods one after the other", attemptMetric, counted, pods)
		}
		return nil
	})
}

// since is what a histogram has counted after an earlier look at it.
func since(now, before testutil.HistogramVec) (testutil.HistogramVec, error) {
	if len(now) != 1 || len(before) != 1 || len(now[0].Bucket) != len(before[0].Bucket) {
		return nil, fmt.Errorf("compare %d histograms with %d: want one of the same form", len(now), len(before))
	}
	d := &dto.Histogram{
		SampleCount: new(now[0].GetSampleCount() - before[0].GetSampleCount()),
		SampleSum:   new(now[0].GetSampleSum() - before[0].GetSampleSum()),
	}
	for i, b := range now[0].Bucket {
		d.Bucket = append(d.Bucket, &dto.Bucket{
			UpperBound:      b.UpperBound,
			CumulativeCount: new(b.GetCumulativeCount() - before[0].Bucket[i].GetCumulativeCount()),
		})
	}
	return testutil.HistogramVec{{Histogram: d}}, nil
}

var successful = map[string]string{"result": "scheduled"}

func attemptsOf(families map[string]*dto.MetricFamily, labels map[string]string) testutil.HistogramVec {
	var vec testutil.HistogramVec
	for _, m := range families[attemptMetric].GetMetric() {
		if testutil.LabelsMatch(m, labels) {
			vec = append(vec, &testutil.Histogram{Histogram: m.GetHistogram()})
		}
	}
	return vec
}

// readRefused is for when pods that fit nowhere have been tried. Where some of the
// burst were refused at first they are among them, which retries tells.
func (r *result) readRefused(ctx context.Context, p *process, misfits int) error {
	return until(ctx, 10*time.Second, "all attempts are counted", func(ctx context.Context) error {
		families, err := p.metrics(ctx)
		if err != nil {
			return err
		}
		r.refused = attemptsOf(families, map[string]string{"result": "unschedulable"})
		if counted := r.refused.GetAggregatedSampleCount(); counted < uint64(misfits) {
			return fmt.Errorf("read %s: %d attempts for %d pods that fit nowhere", attemptMetric, counted, misfits)
		}
		return r.refused.Validate()
	})
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
	steady := func(r *result) testutil.HistogramVec { return r.steady }
	refused := func(r *result) testutil.HistogramVec { return r.refused }
	return []figure{
		{"pods scheduled", "pods/s", (*result).podsPerSecond, bench.AtLeast},
		{"attempt, pods one by one, mean", "ms", mean(steady), bench.AtMost},
		{"attempt, pods one by one, p50", "ms", quantile(0.5, steady), bench.AtMost},
		{"attempt, pods one by one, p99", "ms", quantile(0.99, steady), bench.AtMost},
		{"decision in a burst, mean", "ms", mean(algorithm), bench.AtMost},
		{"decision in a burst, p50", "ms", quantile(0.5, algorithm), bench.AtMost},
		{"decision in a burst, p99", "ms", quantile(0.99, algorithm), bench.AtMost},
		// A scheduler that decides faster than bindings are written has many of them
		// waiting for the API server at once. That is no fault, and so has no target.
		{"attempt in a burst, with binding, mean", "ms", mean(whole), nil},
		{"attempt in a burst, with binding, p99", "ms", quantile(0.99, whole), nil},
		{"attempt that finds no room, mean", "ms", mean(refused), bench.AtMost},
		{"attempt that finds no room, p99", "ms", quantile(0.99, refused), bench.AtMost},
		{"CPU time of the scheduler for a pod", "ms", func(r *result) float64 { return bench.Milliseconds(r.cpu) / float64(r.pods) }, nil},
		{"memory of the scheduler after a burst", "MiB", func(r *result) float64 { return r.memory / (1 << 20) }, nil},
		{"attempts at pods of the burst that failed", "attempts", func(r *result) float64 { return float64(r.retries) }, nil},
	}
}

// rows has each figure of each scheduler, and of ours by how much it differs.
func rows(o options, results map[string]*result) []bench.Row {
	source := fmt.Sprintf("%d nodes of %d cards, %d shares held, %d times: a burst of %d pods, %d pods at %v a second, %d without room", o.nodes, o.cards, o.shares, o.rounds, o.burst, o.steady, o.rate, o.misfits)
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
