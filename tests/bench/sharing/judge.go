// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tranche-dra/tranche/pkg/simcard"
)

// run is a stretch of time in which a tenant had a card: its kernels ran there, or its copies.
type run struct {
	tenant int
	span
}

// span is a stretch of time, CLOCK_MONOTONIC.
type span struct{ from, to time.Duration }

func (s span) length() time.Duration { return max(s.to-s.from, 0) }

func (s span) within(o span) span { return span{max(s.from, o.from), min(s.to, o.to)} }

// contiguous takes what the log of a card has from the index next on up to the
// first run that is not written yet.
func contiguous(runs []simcard.Run, next uint64) []simcard.Run {
	for i, r := range runs {
		if r.Index != next+uint64(i) {
			return runs[:i]
		}
	}
	return runs
}

// parts are the percent of the time that each of so many tenants had the card.
func parts(runs []run, tenants int, within span) []float64 {
	out := make([]float64, tenants)
	for _, r := range runs {
		out[r.tenant] += 100 * float64(r.span.within(within).length()) / float64(within.length())
	}
	return out
}

func sum(of []float64) float64 {
	total := 0.0
	for _, v := range of {
		total += v
	}
	return total
}

// scaled are the same parts in percent of what they are together.
func scaled(of []float64) []float64 {
	total := sum(of)
	out := make([]float64, len(of))
	for i, v := range of {
		if total > 0 {
			out[i] = 100 * v / total
		}
	}
	return out
}

// windows of a width, each a step after the one before, that fit into a stretch.
func windows(within span, width, step time.Duration) []span {
	var out []span
	for from := within.from; from+width <= within.to; from += step {
		out = append(out, span{from, from + width})
	}
	return out
}

// calm leaves out spans of time in which the machine stood still for more than one part in
// 500, from a while before them on.
func calm(spans, standstills []span, before time.Duration) []span {
	var out []span
	for _, s := range spans {
		stood := time.Duration(0)
		for _, still := range standstills {
			stood += still.within(span{s.from - before, s.to}).length()
		}
		if stood <= s.length()/500 {
			out = append(out, s)
		}
	}
	return out
}

// spread is a figure over many windows.
type spread struct {
	worst, median float64
}

// over collects the figure of each window; the highest is the worst.
func over(all []span, figure func(span) float64) spread {
	values := make([]float64, 0, len(all))
	for _, w := range all {
		values = append(values, figure(w))
	}
	if len(values) == 0 {
		return spread{}
	}
	slices.Sort(values)
	return spread{values[len(values)-1], values[(len(values)-1)/2]}
}

// farthest is the greatest distance of a tenant from what it is to have, in points.
func farthest(got, want []float64) float64 {
	most := 0.0
	for i := range want {
		most = max(most, math.Abs(got[i]-want[i]))
	}
	return most
}

// byTime are the same runs in the order of time.
func byTime(runs []run) []run {
	return slices.SortedFunc(slices.Values(runs), func(a, b run) int { return cmp.Compare(a.from, b.from) })
}

// once leaves out what a tenant's runs have twice: its copies run beside its kernels.
func once(runs []run) []run {
	var out []run
	until := map[int]time.Duration{}
	for _, r := range byTime(runs) {
		r.from = max(r.from, until[r.tenant])
		if r.length() == 0 {
			continue
		}
		until[r.tenant] = r.to
		out = append(out, r)
	}
	return out
}

// occupied counts short idle times between two runs of one tenant as the tenant's:
// it had the card, and did not use it. Time that somebody else had, or that was
// idle for longer, stays as it is.
func occupied(runs []run, idle time.Duration) []run {
	var out []run
	for _, r := range byTime(runs) {
		if last := len(out) - 1; last >= 0 && out[last].tenant == r.tenant && r.from-out[last].to <= idle {
			out[last].to = max(out[last].to, r.to)
			continue
		}
		out = append(out, r)
	}
	return out
}

// pausing counts the pause that a tenant makes after each of its runs as the tenant's, up to where
// somebody has the card.
func pausing(runs []run, tenant int, pause time.Duration) []run {
	out := byTime(runs)
	for i, r := range out {
		if r.tenant != tenant {
			continue
		}
		out[i].to += pause
		if i+1 < len(out) {
			out[i].to = max(r.to, min(out[i].to, out[i+1].from))
		}
	}
	return out
}

// of are the runs of one tenant, in the order of time.
func of(runs []run, tenant int) []run {
	var out []run
	for _, r := range runs {
		if r.tenant == tenant {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	return out
}

// firstAfter is when the tenant of these runs, in the order of time, first has the card at or after
// a moment; false where it never has.
func firstAfter(runs []run, moment time.Duration) (time.Duration, bool) {
	i, _ := slices.BinarySearchFunc(runs, moment, func(r run, m time.Duration) int {
		if r.to <= m {
			return -1
		}
		return 1
	})
	if i == len(runs) {
		return 0, false
	}
	return max(runs[i].from, moment), true
}

// delays are how long after each moment the tenant of these runs had the card.
// Moments after its last run do not count.
func delays(runs []run, moments []time.Duration) []time.Duration {
	var out []time.Duration
	for _, m := range moments {
		if at, ok := firstAfter(runs, m); ok {
			out = append(out, at-m)
		}
	}
	return out
}

// pauses looks at requests that came while somebody else had the card. Gets is how
// long it took until the request had the card, stops until the other one had it for
// the last time before the request was done. Requests that came while an earlier
// one was served, or while nobody had the card, do not count.
func pauses(own, others []run, requests []span) (gets, stops []time.Duration) {
	for _, r := range requests {
		if at, ok := firstAfter(own, r.from); !ok || at == r.from {
			continue
		}
		if at, ok := firstAfter(others, r.from); !ok || at != r.from {
			continue
		}
		at, _ := firstAfter(own, r.from)
		gets = append(gets, at-r.from)
		last := r.from
		for _, o := range others {
			if o.from < r.to && o.to > r.from {
				last = max(last, min(o.to, r.to))
			}
		}
		stops = append(stops, last-r.from)
	}
	return gets, stops
}

// resumes are how long after each end of a request the others had the card
// again, before the next one came.
func resumes(others []run, requests []span) []time.Duration {
	var out []time.Duration
	for i, r := range requests {
		at, ok := firstAfter(others, r.to)
		if ok && (i+1 == len(requests) || at < requests[i+1].from) {
			out = append(out, at-r.to)
		}
	}
	return out
}

// together is the percent of the time in which any of these cards was a tenant's
// that all of them were.
func together(cards [][]run, tenant int, within span) float64 {
	type edge struct {
		at    time.Duration
		delta int
	}
	var edges []edge
	for _, runs := range cards {
		for _, r := range of(runs, tenant) {
			if s := r.span.within(within); s.length() > 0 {
				edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var one, all, last time.Duration
	count := 0
	for _, e := range edges {
		if count > 0 {
			one += e.at - last
		}
		if count == len(cards) {
			all += e.at - last
		}
		count, last = count+e.delta, e.at
	}
	if one == 0 {
		return 0
	}
	return 100 * float64(all) / float64(one)
}

// steps are the upper ends of the bins of a histogram; what is above the last has
// a bin of its own.
func steps() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{ms / 10, ms / 5, ms / 2, ms, 2 * ms, 5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms}
}

// histogram counts times by steps.
func histogram(times []time.Duration) []int {
	bins := steps()
	out := make([]int, len(bins)+1)
	for _, t := range times {
		i, _ := slices.BinarySearch(bins, t)
		out[i]++
	}
	return out
}
