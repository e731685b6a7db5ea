// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

func TestMemoryHandedOverStaysChargedToOneOfTheTwo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := start(t, p.box, nil, "handover", "released")
	fill(t, p, client)
	p.gone(t)
	p.neverAbove(t)
}

func TestMemoryFreedByTwoThreadsAtOnceIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := start(t, p.box, nil, "handover", "freed-twice")
	fill(t, p, client)
	p.gone(t)
	p.neverAbove(t)
}

// Memory that only descriptors keep, after its makers have ended, is the share's.
func TestMemoryThatOnlyDescriptorsKeepStaysCharged(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kept", "kept-released", "kept-imported"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 512)
			client := start(t, p.box, nil, "handover", how)
			line, err := client.Expect("kept")
			require.NoError(t, err)
			require.EqualValues(t, 1, amount(t, line, "count"), "six makers of 300 MiB in a share of 512 MiB")
			quiet(t, client)
			require.Equal(t, 300*rig.MiB, p.keptBy(t))
			require.NoError(t, client.Say("close"))
			quiet(t, client)
			require.Zero(t, p.keptBy(t))
			require.NoError(t, client.Say("make anew"))
			quiet(t, client)
			require.NoError(t, client.Say("end"))
			_, err = client.End()
			require.NoError(t, err)
			p.gone(t)
			p.neverAbove(t)
		})
	}
}

// Who has waited for the end of a process finds its memory free. (What the dead held counts
// as held on a simulated card until somebody needs it, so nothing is said of its most.)
func TestMemoryOfAProcessIsThereOnceItWasWaitedFor(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	run(t, p.box, "handover", "inherited")
	p.gone(t)
}

// What another share's process made cannot be imported where there is no room for it.
// Who tried is charged with nothing once it has closed the descriptor, and the maker's
// share until then.
func TestAnImportThatDoesNotFitIsUndone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, err := r.Card(simcard.Config{}) // while the descriptor is open, it counts for who let go of it last
	require.NoError(t, err)
	large, small := newShare(t, r, c, 512), newShare(t, r, c, 256)
	name := string(large.Key)
	maker := start(t, newBox(t, r, large), nil, "handover", "give", name)
	_, err = maker.Expect("listens")
	require.NoError(t, err)
	taker := start(t, newBox(t, r, small), nil, "handover", "take", name)
	quiet(t, taker)
	_, err = maker.End()
	require.NoError(t, err)
	before, err := r.Settled(small)
	require.NoError(t, err)
	require.Equal(t, 300*rig.MiB, charge(t, large), "its process has ended")
	require.NoError(t, taker.Say("import"))
	quiet(t, taker)
	require.NoError(t, r.Audit(c)) // frees what is closed, which simulated cards do when they need room
	require.NoError(t, rig.Until("nothing to be kept", func() (bool, error) {
		after, err := r.Settled(small)
		return err == nil && after == before && charge(t, large) == 0, err
	}))
	require.NoError(t, taker.Say("end"))
	_, err = taker.End()
	require.NoError(t, err)
}

// charge is what the ledger of a share says now.
func charge(t *testing.T, s rig.Share) uint64 {
	t.Helper()
	book, err := rig.OpenLedger(t.Context(), s)
	require.NoError(t, err)
	defer book.Close() //nolint:errcheck // nothing is lost
	return book.Charge()
}

func quiet(t *testing.T, client *rig.Program) {
	t.Helper()
	_, err := client.Expect("quiet")
	require.NoError(t, err)
}

// keptBy waits until the ledger says what the card holds for the share that has it
// alone, by living processes and by descriptors, and returns the latter.
func (p place) keptBy(t *testing.T) (kept uint64) {
	t.Helper()
	book, err := rig.OpenLedger(t.Context(), p.share)
	require.NoError(t, err)
	defer book.Close() //nolint:errcheck // nothing is lost
	require.NoError(t, rig.Until("the ledger to say what the card holds", func() (bool, error) {
		truth, err := p.card.Truth()
		if err != nil {
			return false, err
		}
		if kept, err = p.card.Kept(); err != nil {
			return false, err
		}
		if charge := book.Charge(); charge != truth.Live()+kept {
			return false, fmt.Errorf("processes hold %d bytes and descriptors %d, charged are %d: %s", truth.Live(), kept, charge, book)
		}
		return true, nil
	}))
	return kept
}

// Threads that give up what another one uses again at the same moment are never
// above the limit, not for an instant.
func TestWhatIsUsedAgainIsChargedBefore(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		rounds, bytes, limit uint64
	}{
		// A context is 64 MiB: there is room for one of its own, and for the bytes or a second one.
		"primary": {1500, 64, 128 + 10},
		"graph":   {1500, 64, 2*64 + 64 + 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, row.limit)
			run(t, p.box, "races", name, fmt.Sprint(scaled(int(row.rounds))), fmt.Sprint(row.bytes*rig.MiB))
			p.gone(t)
			p.neverAbove(t)
		})
	}
}
