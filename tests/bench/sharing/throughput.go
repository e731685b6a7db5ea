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

// throughputs compare what gets done with what the card does when nobody divides it.
func throughputs() []scenario {
	var all []scenario
	divisions := []division{
		{"one tenant of two", share.GuaranteedBurst, []card.Percent{50}, nil},
		{"2 tenants", share.GuaranteedBurst, []card.Percent{50, 50}, nil},
		{"4 tenants", share.GuaranteedBurst, repeated[card.Percent](25, 4), nil},
	}
	for _, d := range divisions {
		for _, k := range []kernel{kernels("0.2 ms", "200000"), oneMillisecond(), kernels("5 ms", "5000000")} {
			all = append(all, d.throughput(k, d.name == "2 tenants" && k.name == oneMillisecond().name))
		}
	}
	for _, k := range manyQueues() {
		all = append(all, divisions[0].throughput(k, false))
	}
	for _, d := range divisions[:2] {
		all = append(all, d.throughput(hostWork(), false))
	}
	return all
}

func (d division) throughput(k kernel, short bool) scenario {
	return scenario{
		fmt.Sprintf("throughput lost, %s, %s", d.name, k.name), short,
		func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
			return w.throughput(ctx, c, d, k)
		},
	}
}

// hostWork is a program that launches ahead of what runs, so that it can do something else meanwhile.
func hostWork() kernel {
	k := kernels("0.2 ms", "200000")
	return kernel{k.name + ", and 3 ms for the host's own work after each 5", append([]string{"think=3000000"}, k.work...)}
}

// manyQueues are programs with many streams or threads, and kernels that are short.
func manyQueues() []kernel {
	inTurn := []string{"by=function", "batch=1", "ahead=16"}
	return []kernel{
		{"8 streams of 0.02 ms", append([]string{"kernels=20000", "streams=8"}, inTurn...)},
		{"5 streams of 0.005 ms", append([]string{"kernels=5000", "streams=5"}, inTurn...)},
		{"16 streams of 1 ms", append([]string{"kernels=1000000", "streams=16"}, inTurn...)},
		{"8 threads of 0.02 ms", []string{"kernels=20000", "by=function", "threads=8"}},
		{"64 threads of 0.005 ms", []string{"kernels=5000", "by=function", "threads=64"}},
		{"16 threads, each of 4 streams of 0.05 ms", append([]string{"kernels=50000", "threads=16", "streams=4"}, inTurn...)},
	}
}

// throughput plays the same with and without somebody who divides the card. On the
// simulated card it costs nothing to change turns, so native turns lose nothing.
func (w *world) throughput(ctx context.Context, c contender, d division, k kernel) ([]bench.Row, error) {
	tenants := d.tenants(k.work...)
	if len(tenants) == 1 {
		// Another share is on the card, so that nobody may let work pile up.
		tenants = append(tenants, tenant{share.GuaranteedBurst, share.NoClass, 50, []string{"delay=100000"}})
	}
	var done [2]float64
	var machine [2]string
	for i, who := range []contender{{name: "none", bare: true}, c} {
		rec, err := w.play(ctx, who, max(w.length/2, 2*time.Second), onFirst(tenants...))
		if err != nil {
			return nil, err
		}
		all, _ := rec.windows(time.Second/2, 50*time.Millisecond)
		busy := over(all, func(s span) float64 { return sum(parts(rec.cards[0], len(tenants), s)) })
		done[i], machine[i] = busy.median, rec.machine()
	}
	if done[0] == 0 {
		return nil, unmeasured("natively, nothing ran for most of the time; " + machine[0])
	}
	return []bench.Row{{
		Metric: "against native turns", Value: 100 * (1 - done[1]/done[0]), Unit: "%", Target: bench.AtMost(3),
		Reference: "XSched 5.7, native time slicing 9.4", Source: ownTarget + "; " + xsched,
		Remark: fmt.Sprintf("the card is busy for %.2f %% of the time, natively %.2f %% (medians); %s, natively %s",
			done[1], done[0], machine[1], machine[0]),
	}}, nil
}
