// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// anyWorkers on up to three cards: shares of all kinds whose guarantees fit, busy or not.
func anyWorkers(t *rapid.T) []*worker {
	var workers []*worker
	left := map[string]card.Percent{"x": 100, "y": 100, "z": 100}
	draw := func(key string, cards ...string) {
		policy := rapid.SampledFrom(share.Policies()).Draw(t, "policy")
		cores := card.Percent(rapid.SampledFrom([]int{0, 5, 10, 20, 40}).Draw(t, "cores"))
		kernel := time.Duration(rapid.SampledFrom([]int{50, 300, 1000, 4000}).Draw(t, "kernel")) * us
		think := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 20, 700, 9000}).Draw(t, "think")) * us
		classes := share.Classes()
		if len(cards) > 1 {
			// Half of a collective that is offline work may spin for as long as online work
			// keeps the other half from its card.
			classes = []share.Class{share.NoClass, share.Online}
		}
		class := rapid.SampledFrom(classes).Draw(t, "class")
		ceiling := card.Percent(rapid.SampledFrom([]int{100, 100, 60}).Draw(t, "ceiling"))
		foretells := time.Duration(rapid.SampledFrom([]int{0, 30, 70}).Draw(t, "foretells")) * us
		for _, c := range cards {
			cores = min(cores, left[c])
		}
		for _, w := range job(key, policy, cores, kernel, cards...) {
			left[string(w.spec.Card)] -= cores
			if len(cards) == 1 {
				w.spec.Gang = ""
			}
			w.ceiling(ceiling).thinks(think).class(class)
			if len(cards) == 1 {
				w.foretells = foretells
			}
			if class == share.Offline {
				w.offline(cores)
			}
			workers = append(workers, w)
		}
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "tenants") {
		draw(fmt.Sprint("t", i), rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "card"))
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "jobs") {
		draw(fmt.Sprint("j", i), rapid.SampledFrom([][]string{{"x", "y"}, {"y", "z"}, {"x", "y", "z"}}).Draw(t, "cards")...)
	}
	return workers
}

// What is promised holds for every mixture of tenants.
func TestAnyMixtureOfTenants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		workers := anyWorkers(rt)
		m := simulate(t, workers...)
		m.run(2 * time.Second)
		testSums(t, m.s, m.now)
		require.Less(rt, m.timers, 20000)
		for _, c := range m.s.State(m.now) {
			for _, o := range c.Tenants {
				i := 0
				for workers[i].spec.Key != o.Key {
					i++
				}
				w := workers[i]
				if o.Policy == share.Fixed && o.Limits.Cores > 0 && w.peers == nil {
					part := float64(o.Limits.Cores) / 100
					// What it may save up: its part of what others kept it waiting for, once and again.
					waits := slices.Sorted(slices.Values(append(w.wait, 0, 0)))
					owed := max(20*ms, time.Duration(part*float64(waits[len(waits)-1]+waits[len(waits)-2])))
					require.Less(rt, w.most(part), owed+8*ms+2*w.kernel()+window, "%+v", o)
				}
				if w.peers != nil || o.Class == share.Offline || o.Policy != share.Fixed && o.Policy != share.GuaranteedBurst {
					continue
				}
				floor := o.Usage.Wanted * time.Duration(o.Limits.Cores) / 100
				// Work that is not always there cannot be had back: kernels are not interrupted.
				if w.think() == 0 {
					require.Greater(rt, o.Usage.Held+30*ms+floor/8, floor, "%v of %+v", o.Key, m.s.State(m.now))
				}
				if floor > 0 && len(w.wait) > 0 {
					overrun := w.kernel() * 100 / time.Duration(o.Limits.Cores) // is paid for before the next turn
					require.Less(rt, slices.Max(w.wait), 300*ms+overrun, "%v of %+v", o.Key, m.s.State(m.now))
				}
			}
		}
	})
}
