// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// What is launched in a way that leaves it unrecorded is charged as well, once it was seen
// to take longer than it did before.
func TestAProgramWhoseKernelsGrowKeepsToItsShare(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"streams", "several", "threads", "waits"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newCard(t, r, simcard.Config{})
			other := newSharer(t, r, c, share.GuaranteedBurst, 80)
			grown := &sharer{rig: r, box: newBox(t, r, changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = share.GuaranteedBurst, 20 }))}
			grown.program = start(t, grown.box, nil, "awkward", how)
			_, err := grown.program.Expect("trained")
			require.NoError(t, err)
			inBounds(t, c, []*sharer{grown, other}, []float64{20, 80})
		})
	}
}

// What a program waits for on the card is not waited for by the gate, nor for as long
// as it took when something came late.
func TestProgramsWhoseStreamsWaitEndBesideOthers(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"full", "hiccup"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newCard(t, r, simcard.Config{})
			box := newBox(t, r, changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = share.GuaranteedBurst, 50 }))
			changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = share.GuaranteedBurst, 50 })
			_, err := start(t, box, nil, "awkward", how).End()
			require.NoError(t, err)
		})
	}
}

// What short kernels take is learned although they are launched on more streams than anybody
// keeps account of. One that is not known counts as all that may be in flight.
func TestShortKernelsOfManyStreamsAreTimed(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string]int{"few": 3, "many": 8, "very many": 17} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			g.set(wire.LeaseOpen)
			p := worker(t, g, "seconds=600", "kernels=50000", "batch=1", "ahead=16", fmt.Sprint("streams=", streams))
			d := g.demand(0)
			// Gaps that a busy machine makes between kernels count as well: a few times as much as the card
			// tells is no sign, and a window is as long as 20 of them.
			const known = 6
			require.NoError(t, rig.Until("the process to be seen to use about what it does", func() (bool, error) {
				began, used := clock(), d.Used.Load()
				until(t, "many kernels", func() bool { return len(g.runs(began)) > 500 })
				g.close(d)
				saw, ran := time.Duration(d.Used.Load()-used), g.ran(began)
				g.set(wire.LeaseOpen)
				if ran == 0 || saw >= known*ran {
					return false, fmt.Errorf("it used the card for %s and was seen to use %s", ran, saw)
				}
				return true, nil
			}))
			require.NoError(t, p.Signal(syscall.SIGKILL))
		})
	}
}
