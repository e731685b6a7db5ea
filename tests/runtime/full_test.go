// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// A thread that waits in a launch, because its stream is full of work that waits for something else than the
// card, does not use the card: its share does not hold it.
func TestAThreadThatWaitsInALaunchForSomethingElseDoesNotHoldTheCard(t *testing.T) {
	t.Parallel()
	for name, lets := range map[string]func(t *testing.T, g gated, d *wire.Demand){
		"a closed lease is obeyed": func(t *testing.T, g gated, d *wire.Demand) {
			t.Helper()
			word := g.set(wire.LeaseClosed)
			until(t, "the closed lease to be obeyed", func() bool { return d.Drained.Load() == word && d.Ends.Load() == 0 })
		},
		"a card that others wait for is given up": func(t *testing.T, g gated, d *wire.Demand) {
			t.Helper()
			g.set(wire.LeaseOpen | wire.LeaseContended)
			until(t, "the card to be given up", func() bool { return d.Wants.Load() == 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			g.set(wire.LeaseOpen)
			p := begin(t, g.box, "gate", "full")
			quiet(t, p)
			d := g.demand(0)
			began := clock()
			lets(t, g, d)
			require.False(t, g.busyBetween(began, clock()), "the card works")
			// What waited goes on, and more is launched only under an open lease.
			require.NoError(t, p.Say("go on"))
			g.set(wire.LeaseOpen)
			expect(t, p, "ok")
			var busy time.Duration
			until(t, "all to have run", func() bool {
				busy = 0
				for _, run := range g.runs(0) {
					busy += run.End - run.Start
				}
				return busy >= 2001*20*time.Microsecond
			})
			_, err := p.End()
			require.NoError(t, err)
		})
	}
}
