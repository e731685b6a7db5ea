// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/bench"
)

// limits are measurements of shares that must not have more than theirs.
func limits() []scenario {
	fixed := func(cores card.Percent, work ...string) tenant {
		return tenant{policy: share.Fixed, class: share.NoClass, cores: cores, work: work}
	}
	overshoot := func(name string, short bool, tenants ...tenant) scenario {
		return scenario{"fixed-share overshoot, " + name, short, func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.overshoot(ctx, c, tenants)
		}}
	}
	brief, long := oneMillisecond().work, kernels("", "20000000").work
	return []scenario{
		overshoot("20 on an idle card, kernels of 1 ms", true, fixed(20, brief...)),
		overshoot("20 on an idle card, kernels of 20 ms", false, fixed(20, long...)),
		overshoot("20 on an idle card, eight processes", false, fixed(20, append([]string{"processes=8"}, brief...)...)),
		overshoot("20 and 30 with half of the card left over, kernels of 1 ms", false, fixed(20, brief...), fixed(30, brief...)),
		{"limits right after idling, fixed 20", true, func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			idle := w.length / 2
			work := append([]string{fmt.Sprint("delay=", (w.settling + idle).Milliseconds())}, brief...)
			return w.afterIdling(ctx, c, idle, fixed(20, work...))
		}},
	}
}

func (w *world) overshoot(ctx context.Context, c contender, tenants []tenant) ([]bench.Row, error) {
	rec, err := w.play(ctx, c, w.length, onFirst(tenants...))
	if err != nil {
		return nil, err
	}
	runs := rec.cards[0]
	all, which := rec.windows(time.Second, 10*time.Millisecond)
	most := over(all, func(s span) float64 {
		excess := -100.0
		for i, got := range parts(runs, len(tenants), s) {
			excess = max(excess, got-float64(tenants[i].cores))
		}
		return excess
	})
	return []bench.Row{{
		Metric: "over 1 s", Value: most.worst, Unit: "points", Target: bench.AtMost(1),
		Source: ownTarget,
		Remark: fmt.Sprintf("the worst %s, median %.2f; of the card %s; %s", which, most.median,
			list1(parts(runs, len(tenants), rec.judged)), rec.machine()),
	}}, nil
}

// afterIdling measures a share that was idle until now.
func (w *world) afterIdling(ctx context.Context, c contender, idle time.Duration, t tenant) ([]bench.Row, error) {
	rec, err := w.play(ctx, c, w.length, onFirst(t))
	if err != nil {
		return nil, err
	}
	woke := rec.moments(0, "wake", "at", 0)
	if len(woke) == 0 {
		return nil, rec.nothing("wake", "at")
	}
	var rows []bench.Row
	for _, width := range []time.Duration{100 * time.Millisecond, time.Second} {
		got := parts(rec.cards[0], 1, span{woke[0], woke[0] + width})[0]
		row := bench.Row{
			Metric: fmt.Sprintf("excess in the first %s after %s", width, idle), Value: got - float64(t.cores), Unit: "points",
			Reference: "HAMi-core limits nothing for 9 to 10 s", Source: ownTarget + "; " + measured, Remark: rec.machine(),
		}
		if width == time.Second {
			row.Target = bench.AtMost(1)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// bursts are shares that use what others leave, and give it back.
func bursts() []scenario {
	var all []scenario
	for _, k := range []kernel{kernels("0.2 ms", "200000"), oneMillisecond(), kernels("5 ms", "5000000")} {
		all = append(all, scenario{
			"burst beside a share of 20 that sleeps by turns, " + k.name, k.name == oneMillisecond().name,
			func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
				return w.burst(ctx, c, k.work, k.work)
			},
		})
	}
	brief := oneMillisecond()
	return append(all, scenario{
		"burst of 16 processes beside a share of 20 that sleeps by turns, " + brief.name, false,
		func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.burst(ctx, c, brief.work, append([]string{"processes=16"}, brief.work...))
		},
	})
}

// Turns of the share that sleeps. It wakes at other places of everybody's rounds each time.
const (
	burstOn  = 203 * time.Millisecond
	burstOff = 151 * time.Millisecond
)

// burst measures one who sleeps by turns, and one who may use what he leaves.
func (w *world) burst(ctx context.Context, c contender, sleeps, bursts []string) ([]bench.Row, error) {
	turns := []string{fmt.Sprint("on=", burstOn.Milliseconds()), fmt.Sprint("off=", burstOff.Milliseconds()), "ahead=1"}
	rec, err := w.play(ctx, c, w.length, onFirst(
		tenant{share.GuaranteedBurst, share.NoClass, 20, append(turns, sleeps...)},
		tenant{share.GuaranteedBurst, share.NoClass, 80, bursts},
	))
	if err != nil {
		return nil, err
	}
	woke := rec.moments(0, "wake", "at", burstOff)
	if len(woke) == 0 {
		return nil, rec.nothing("wake", "at")
	}
	took := delays(of(rec.cards[0], 0), woke)
	if len(took) == 0 {
		return nil, unmeasured(fmt.Sprintf("the share woke %d times, and never had the card after that", len(woke)))
	}
	// A tenth of each sleep is left to what the sleeper still had in flight.
	asleep := over(spans(woke, -burstOff*9/10, 0), func(s span) float64 { return parts(rec.cards[0], 2, s)[1] })
	awake := over(spans(woke, 0, burstOn), func(s span) float64 { return parts(rec.cards[0], 2, s)[0] })
	const source = ownTarget + "; xGPU: Huawei Cloud"
	remark := fmt.Sprintf("the share woke %d times; %s", len(took), rec.machine())
	return []bench.Row{
		{Metric: "part of the card while the other sleeps", Value: asleep.median, Unit: "%", Target: bench.AtLeast(97), Source: ownTarget, Remark: remark},
		{Metric: "part of the one who sleeps, when awake", Value: awake.median, Unit: "%", Remark: remark},
		{Metric: "idle compute handed back, p50", Value: bench.Milliseconds(bench.Percentile(took, 50)), Unit: "ms", Target: bench.AtMost(20), Reference: "xGPU 100", Source: source, Remark: remark},
		{Metric: "idle compute handed back, the longest", Value: bench.Milliseconds(bench.Percentile(took, 100)), Unit: "ms", Target: bench.AtMost(20), Reference: "xGPU 100", Source: source, Remark: remark},
	}, nil
}

// spans are those from some time before or after each moment to another.
func spans(moments []time.Duration, from, to time.Duration) []span {
	var out []span
	for _, m := range moments {
		out = append(out, span{m + from, m + to})
	}
	return out
}
