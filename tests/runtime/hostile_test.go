// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

func TestATenantThatScribblesOverAllItsPagesHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	bad, good := newShare(t, r, c, 512), newShare(t, r, c, 1024)
	badBox, goodBox := newBox(t, r, bad), newBox(t, r, good)
	arbiter := r.Arbiter()
	for seed := range 3 {
		hostile := start(t, badBox, nil, "scribble", strconv.Itoa(seed+1))
		pages, err := hostile.Expect("pages")
		require.NoError(t, err)
		// It got at something, or the test tests nothing; the grant is not among it.
		require.NotZero(t, amount(t, pages, "writable"))
		require.NotZero(t, amount(t, pages, "readonly"), "the grant was writable")
		// Others of the hostile tenant suffer; they do not hang.
		victim := start(t, badBox, nil, "tenant")
		_, err = victim.Ask("init")
		require.NoError(t, err)
		// The neighbour has all of its share, and the arbiter is there.
		run(t, goodBox, "storm", "2", "2", strconv.Itoa(scaled(10)))
		neighbour := tenant(t, goodBox, 0)
		require.Equal(t, good.Limit, amount(t, ask(t, neighbour, "info", success), "total"))
		require.Greater(t, fillUp(t, neighbour, "alloc", 32*rig.MiB), 25)
		require.NoError(t, neighbour.Signal(syscall.SIGKILL))
		require.Error(t, neighbour.Wait())
		require.NoError(t, hostile.Signal(syscall.SIGKILL))
		require.NoError(t, victim.Signal(syscall.SIGKILL))
		rest, _ := hostile.End()
		for _, line := range rest {
			require.NotContains(t, line.Text, "size changed", "a page can be made smaller or larger")
		}
		require.NoError(t, rig.Until("the neighbour's memory to be back", func() (bool, error) {
			held, err := r.Settled(good)
			return held == 0, err
		}))
		require.True(t, arbiter.Running())
	}
	// When the hostile ones are gone, so is what they wrote.
	require.NoError(t, rig.Until("the hostile share to be usable again", func() (bool, error) {
		p := start(t, badBox, nil, "tenant")
		for _, line := range []string{"init", "context 0", fmt.Sprint("take alloc ", 64*rig.MiB)} {
			answer, err := p.Ask(line)
			if err != nil || answer.Values["result"] != "0" {
				return false, fmt.Errorf("%s: %s (%w)", line, answer.Text, err)
			}
		}
		return true, p.Signal(syscall.SIGKILL)
	}))
}
