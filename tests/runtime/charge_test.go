// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

// outgrows lets a program of that name compute in a share without end.
func outgrows(t *testing.T, r *rig.Rig, s rig.Share, name string) *sharer {
	t.Helper()
	o := &sharer{rig: r, box: newBox(t, r, s)}
	o.program = start(t, o.box, nil, "outgrows", name)
	expect(t, o.program, "ready")
	require.NoError(t, o.program.Say("go"))
	return o
}

// keeps waits for a long stretch of time in which the sharer has that percent of the card, by the card's word.
func (s *sharer) keeps(t *testing.T, c *simcard.Card, percent float64) {
	t.Helper()
	const long = 10 * time.Second
	tolerance := 8.0 // its work comes in lumps
	if rig.Flavour() != "release" {
		tolerance = 15
	}
	require.NoError(t, rig.Until("the share to have what it may", func() (bool, error) {
		before, began := s.had(t, c), clock()
		<-time.After(long)
		part := 100 * float64(s.had(t, c)-before) / float64(clock()-began)
		t.Logf("it has %.1f %%", part)
		if math.Abs(part-percent) > tolerance {
			return false, fmt.Errorf("it has %.1f %%", part)
		}
		return true, nil
	}))
}

// What is computed beyond the lease is not seen by the process itself, and is charged by the card's word.
func TestWhoComputesBeyondTheLeaseHasNoMoreInTheLongRun(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"grows", "contexts", "behind"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newCard(t, r, simcard.Config{})
			newSharer(t, r, c, share.GuaranteedBurst, 50)
			s := changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = share.Fixed, 20 })
			outgrows(t, r, s, name).keeps(t, c, 20)
			guarantee := told(t, r, s.Key)
			require.Less(t, guarantee.Held, guarantee.Wanted/2, "and that is what is told of it")
		})
	}
}

// What was queued while nobody else was there runs on, but is charged from when somebody is.
func TestWhatWasQueuedBeforeOthersCameIsCharged(t *testing.T) {
	t.Parallel()
	const queue = 72 * time.Second // as the client has it: a busy machine may take long to start the other program
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	s := changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = share.GuaranteedBurst, 20 })
	until(t, "the share to be alone", func() bool { return told(t, r, s.Key).State == "free" })
	alone := outgrows(t, r, s, "deep")
	expect(t, alone.program, "queued")
	newSharer(t, r, c, share.GuaranteedBurst, 80)
	before, held := alone.had(t, c), told(t, r, s.Key).Held
	until(t, "it to be charged, before all of it has run", func() bool {
		had := alone.had(t, c)
		require.Less(t, had, queue)
		had -= before
		return had > time.Second && told(t, r, s.Key).Held-held > had*3/4
	})
}
