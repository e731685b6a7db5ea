// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/wire"
)

func TestAKilledProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	h := startHelper(t)
	require.Equal(t, "slot 1 ok", h.ask(t, "attach", dir))
	require.Equal(t, "true", h.ask(t, "take", 1024*mib))
	require.EqualValues(t, 1024*mib, c.Charge())
	h.end()
	eventually(t, func() bool { return c.Charge() == 0 && c.Grant.SlotsUsed.Load() == 1 }, "the slot is cleared")
	require.Zero(t, c.Ledger.Slot[1].Attached.Load())
	require.EqualValues(t, 1, c.Ledger.SlotsUsed.Load())
}

func TestAZombieHoldsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", mib)
	require.NoError(t, h.Process.Kill()) // and nobody waits for it yet
	eventually(t, func() bool { return c.Charge() == 0 }, "the slot is cleared")
}

func TestSlotsAreUsedAgainFromTheLowest(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	var helpers []*helper
	for i := range 3 {
		h := startHelper(t)
		require.Equal(t, fmt.Sprintf("slot %d ok", i+1), h.ask(t, "attach", dir))
		helpers = append(helpers, h)
	}
	for _, h := range helpers[:2] {
		h.end()
	}
	eventually(t, func() bool { return c.Ledger.Slot[1].Attached.Load() == 0 && c.Ledger.Slot[2].Attached.Load() == 0 }, "two slots are free")
	require.EqualValues(t, 4, c.Grant.SlotsUsed.Load(), "the last one is taken")
	require.Equal(t, "slot 1 ok", startHelper(t).ask(t, "attach", dir))
}

func TestAProcessThatClosesItsDescriptorsKeepsItsSlot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", mib)
	h.ask(t, "close")
	// One that was looked at after the first was: events come in order.
	other := startHelper(t)
	other.ask(t, "attach", dir)
	require.Equal(t, "executed", other.ask(t, "exec"))
	eventually(t, func() bool { return c.Grant.SlotsUsed.Load() == 2 }, "the other one's slot is free")
	require.EqualValues(t, mib, c.Charge())
	require.Equal(t, "false", h.ask(t, "take", 4096*mib), "it still sees the ledger")
	h.end()
	eventually(t, func() bool { return c.Charge() == 0 }, "its end is noticed all the same")
}

func TestAnotherProgramDoesNotHoldWhatTheFirstDid(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", mib)
	require.Equal(t, "executed", h.ask(t, "exec"))
	eventually(t, func() bool { return c.Charge() == 0 }, "the slot is cleared")
	require.Equal(t, "slot 1 ok", h.ask(t, "attach", dir), "the new program is a client like any other")
}

func TestAnotherProgramIsNoticedAlthoughAChildHasTheConnection(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", mib)
	child, err := strconv.Atoi(h.ask(t, "fork"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	require.Equal(t, "executed", h.ask(t, "exec"))
	eventually(t, func() bool { return c.Charge() == 0 }, "the slot is cleared")
	require.Equal(t, "slot 1 ok", h.ask(t, "attach", dir))
}

func TestManyProcessesThatEndAtOnce(t *testing.T) {
	t.Parallel()
	const count = 300
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	helpers := make([]*helper, count)
	for i := range helpers {
		helpers[i] = startHelper(t)
		helpers[i].tell(t, "attach", dir)
	}
	slots := map[string]bool{}
	for _, h := range helpers {
		require.True(t, h.out.Scan())
		slots[h.out.Text()] = true
		require.Equal(t, "true", h.ask(t, "take", mib))
	}
	require.Len(t, slots, count, "each has a slot of its own")
	require.EqualValues(t, count*mib, c.Charge())
	for _, h := range helpers {
		require.NoError(t, h.Process.Kill())
	}
	eventually(t, func() bool { return c.Charge() == 0 && c.Grant.SlotsUsed.Load() == 1 }, "all slots are cleared")
}

func TestAProcessMayAttachAFewTimesOnly(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	for range 16 {
		attach(t, dir)
	}
	require.Contains(t, refusedProcess(t, dir).Error(), "refused (full): the process is attached 16 times already")
}

func TestExportedMemoryStaysCharged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	importer := attach(t, dir)
	maker := startHelper(t)
	maker.ask(t, "attach", dir)
	maker.ask(t, "take", 512*mib)
	n.usage.set(maker.pid(), 512*mib)
	// When the maker ends, the card goes on to hold its memory for the importer.
	n.usage.set(os.Getpid(), 512*mib)
	maker.end()
	eventually(t, func() bool { return importer.Ledger.Slot[1].Attached.Load() == 0 }, "the maker's slot is free")
	require.EqualValues(t, 512*mib, importer.Slot().Implicit.Load(), "it was charged before")
	require.EqualValues(t, 512*mib, importer.Charge())
}

func TestACardThatCannotBeReadKeepsNoSlot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", mib)
	hang := make(chan struct{})
	defer close(hang)
	n.usage.intervene(func() { <-hang })
	h.end()
	eventually(t, func() bool { return c.Charge() == 0 }, "the slot is cleared")
}

func TestTheEndOfAProcessIsSeenByAllOfItsShares(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	first, second := n.served(t, some("a", 4096)), n.served(t, some("b", 4096))
	a, b := attach(t, first), attach(t, second)
	h := startHelper(t)
	h.ask(t, "attach", first)
	h.ask(t, "take", mib)
	h.ask(t, "attach", second)
	h.ask(t, "take", mib)
	require.Equal(t, []uint64{mib, mib}, []uint64{a.Charge(), b.Charge()})
	h.end()
	eventually(t, func() bool { return a.Charge() == 0 && b.Charge() == 0 }, "both slots are cleared")
	require.NotEqual(t, wire.GrantEnded, a.Grant.Flags.Load())
}
