// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

// classed makes a share of a class on the card.
func classed(t *testing.T, r *rig.Rig, c *simcard.Card, class share.Class) rig.Share {
	t.Helper()
	return changed(t, r, c, func(s *share.Share) {
		s.Class, s.Policy, s.Limits.Cores = class, share.GuaranteedBurst, 50
		if class == share.Offline {
			s.Limits.Cores, s.Limits.OfflineCores = 0, 50
		}
	})
}

// have waits until two sharers have parts of the card, in percent, that are as they should be.
func have(t *testing.T, c *simcard.Card, both []*sharer, what string, so func(first, second float64) bool) {
	t.Helper()
	require.NoError(t, rig.Until(what, func() (bool, error) {
		if has := parts(t, c, both); !so(has[0], has[1]) {
			return false, fmt.Errorf("they have %.1f", has)
		}
		return true, nil
	}))
}

func TestWhoIsStoppedAtWorkKeepsNobodyFromTheCard(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stopped, other share.Class
		args           []string
		most           float64 // that the other one has while nobody is stopped
	}{
		"online, beside offline work":  {share.Online, share.Offline, nil, 10},
		"of one level":                 {share.NoClass, share.NoClass, nil, 60},
		"of one level, with processes": {share.NoClass, share.NoClass, []string{"processes=2", "threads=2"}, 60},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := newCard(t, r, simcard.Config{})
			of := classed(t, r, c, tc.stopped)
			stopped := newSharerOf(t, r, tc.args, of)
			other := newSharerOf(t, r, nil, classed(t, r, c, tc.other))
			both := []*sharer{stopped, other}
			together := func(first, second float64) bool { return first > 30 && second < tc.most }
			have(t, c, both, "both to work", together)
			for range 2 {
				stopped.signal(t, syscall.SIGSTOP)
				// More than between waits for what may be in flight.
				have(t, c, both, "the other one to have the card", func(first, second float64) bool { return first == 0 && second > 70 })
				until(t, "the one that is stopped not to count", func() bool { return !told(t, r, of.Key).Wants })
				stopped.signal(t, syscall.SIGCONT)
				have(t, c, both, "both to work again", together)
			}
			require.Empty(t, stopped.program.Complaints()+other.program.Complaints())
		})
	}
}

// Nobody had asked for the card before it was stopped.
func TestWhoIsStoppedWhileItHasAnIdleCardKeepsNobodyFromIt(t *testing.T) {
	t.Parallel()
	for _, class := range []share.Class{share.Online, share.NoClass} {
		t.Run(string(class), func(t *testing.T) {
			r := newRig(t)
			c := newCard(t, r, simcard.Config{})
			online, offline := classed(t, r, c, class), classed(t, r, c, share.Offline)
			p := tenant(t, newBox(t, r, online), 0)
			ask(t, p, "launch 1000000", success)
			require.True(t, told(t, r, online.Key).Wants, "nobody has asked for the card")
			require.NoError(t, p.Signal(syscall.SIGSTOP))
			work := newSharerOf(t, r, nil, offline)
			until(t, "offline work to run", func() bool { return parts(t, c, []*sharer{work})[0] > 50 })
			require.False(t, told(t, r, online.Key).Wants)
			require.NoError(t, p.Signal(syscall.SIGCONT))
			for range 20 {
				ask(t, p, "launch 1000000", success)
			}
			require.Empty(t, work.program.Complaints())
		})
	}
}
