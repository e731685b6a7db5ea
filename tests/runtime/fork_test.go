// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

func TestAProgramWithTheCardInUseMakesProcessesInAllWays(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fork", "exec", "vfork", "spawn", "clone", "daemon", "threads"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 512)
			lines := run(t, p.box, "forks", name)
			require.Equal(t, "ok", lines[len(lines)-1].Word)
			p.gone(t)
		})
	}
}

func TestManyProcessesStartAtOnce(t *testing.T) {
	t.Parallel()
	count := scaled(300)
	r := newRig(t)
	c := newCard(t, r, simcard.Config{Memory: 65536 * rig.MiB, ContextBytes: 16 * rig.MiB})
	s := newShare(t, r, c, 32768)
	box := newBox(t, r, s)
	lines := run(t, box, "starts", strconv.Itoa(count), "2", rig.Client("begin"), "context")
	t.Log(lines[len(lines)-1].Text)
	p := place{r, c, s, box}
	p.gone(t)
}

// A process that executes another program has given up all that it had.
func TestExecGivesBackWhatTheProgramHad(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	lines := run(t, p.box, "begin", "exec")
	require.Equal(t, "ok", lines[len(lines)-1].Word)
	p.gone(t)
}

// A program that closes descriptors which it has not opened has not ended: it keeps
// what it has, and can go on.
func TestAProgramThatClosesForeignDescriptorsGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := tenant(t, p.box, 0)
	ask(t, client, "take alloc 33554432", success)
	held := p.settled(t)
	require.NotZero(t, amount(t, ask(t, client, "closefds", success), "closed"))
	require.Equal(t, held, p.settled(t))
	ask(t, client, "take vmm 33554432", success)
	require.Greater(t, p.settled(t), held)
	ask(t, client, "launch 1000", success)
	fillUp(t, client, "alloc", 16*rig.MiB)
	p.settled(t)
	p.neverAbove(t)
	require.NoError(t, client.Say("quit"))
	_, err := client.End()
	require.NoError(t, err)
	p.gone(t)
}
