// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/bench"
)

// gangs measures one claim on two cards whose work goes in step on both, one step
// ahead, beside a tenant on each card.
func gangs() scenario {
	return scenario{"two cards in step, 50 beside a share of 50 on each", true, func(ctx context.Context, w *world, c contender) ([]bench.Row, error) {
		half := func(work ...string) tenant { return tenant{share.GuaranteedBurst, share.NoClass, 50, work} }
		brief := oneMillisecond().work
		rec, err := w.play(ctx, c, w.length, []on{
			{half(append([]string{"ahead=2", "batch=1"}, brief...)...), []int{0, 1}}, {half(brief...), []int{0}}, {half(brief...), []int{1}},
		})
		if err != nil {
			return nil, err
		}
		rows := []bench.Row{{
			Metric: "both cards at once, of the time that it has one", Value: together(rec.cards, 0, rec.judged), Unit: "%", Remark: rec.machine(),
		}}
		for i, runs := range rec.cards {
			got := parts(occupied(runs, yieldAfter), 3, rec.judged)
			rows = append(rows, bench.Row{
				Metric: fmt.Sprintf("its part of card %d", i), Value: got[0], Unit: "%",
				Remark: fmt.Sprintf("50 is its own; the other one has %.1f; %s", got[1]+got[2], rec.machine()),
			})
		}
		return rows, nil
	}}
}
