// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/rig"
)

// KILLS does more than the few of every day, KILL_SEED repeats.
func TestProcessesKilledInTheMiddleOfAnyCallLeaveNothingAndStopNobody(t *testing.T) {
	t.Parallel()
	kills := number(t, "KILLS", scaled(1200))
	seed := number(t, "KILL_SEED", int(time.Now().UnixNano()%1_000_000_000))
	t.Logf("KILL_SEED=%d", seed)
	p := newPlace(t, 512)
	// A bystander of the same share, and what is left for the others.
	bystander := tenant(t, p.box, 0)
	ask(t, bystander, fmt.Sprint("take alloc ", 64*rig.MiB), success)
	before := p.settled(t)
	const room = 512 - 64 - 64 - 64 // its context and block, and the other's context
	lines := run(t, p.box, "killed", strconv.Itoa(seed), strconv.Itoa(kills), strconv.Itoa(room))
	t.Log(lines[len(lines)-1].Text)
	require.Equal(t, before, p.settled(t))
	ask(t, bystander, fmt.Sprint("take alloc ", 16*rig.MiB), success)
	require.NoError(t, p.rig.Audit(p.card))
}

// The same with what a client does when it has all of the share.
func TestWhatAKilledProcessHeldCanBeHadAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	for range 5 {
		client := tenant(t, p.box, 0)
		blocks := fillUp(t, client, "alloc", 32*rig.MiB)
		require.Greater(t, blocks, 10)
		p.settled(t)
		require.NoError(t, client.Signal(syscall.SIGKILL))
		require.Error(t, client.Wait())
		p.gone(t)
	}
}

// A stopped process keeps what it has, and holds nobody up.
func TestAStoppedProcessHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 768)
	for range scaled(20) {
		busy := start(t, p.box, nil, "storm", "self", "2", "1000000")
		require.NoError(t, rig.Until("it to be at work", func() (bool, error) {
			held, err := p.rig.Held(p.share)
			return held > 128*rig.MiB, err
		}))
		require.NoError(t, busy.Signal(syscall.SIGSTOP))
		// There may be room for it or not: it gets its answer.
		other := start(t, p.box, nil, "tenant")
		ask(t, other, "init", success)
		answer, err := other.Ask("context 0")
		require.NoError(t, err)
		require.Contains(t, []string{strconv.Itoa(success), strconv.Itoa(outOfMemory)}, answer.Values["result"])
		require.NoError(t, other.Signal(syscall.SIGKILL))
		require.NoError(t, busy.Signal(syscall.SIGKILL))
		require.Error(t, busy.Wait())
		p.gone(t)
	}
}
