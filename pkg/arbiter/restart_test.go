// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// again connects a client anew, as the runtime does when its connection ended: as often
// as it takes, for an arbiter may be ready because it stands by.
func again(t *testing.T, c *wireclient.Client, dir string) *wireclient.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	back, err := persist(ctx, func() (*wireclient.Client, error) { return c.Again(ctx, dir) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = back.Close() })
	return back
}

func TestALedgerOutlivesItsArbiter(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.start(t)
	dir := n.served(t, some("a", 4096))
	h, dead := startHelper(t), startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", 1000*mib)
	dead.ask(t, "attach", dir)
	dead.ask(t, "take", 500*mib)
	first.stop()
	require.Equal(t, "EOF", h.ask(t, "lost"), "processes notice that the arbiter has ended")
	require.Equal(t, "true", h.ask(t, "take", mib), "and go on with what they have")
	dead.end()

	n.start(t)
	c := attach(t, dir)
	require.EqualValues(t, 1001*mib, c.Charge(), "the ledger is that of before, without who has died")
	require.EqualValues(t, 1, c.Welcome.Slot, "whose slot is free")
	require.Equal(t, "slot 0 ok", h.ask(t, "again", dir))
	require.True(t, c.Take(mib))
	require.Equal(t, fmt.Sprint(1002*mib), h.ask(t, "charge"))
	h.end()
	eventually(t, func() bool { return c.Charge() == mib }, "who came back is followed")
}

func TestAStoppedProcessKeepsWhatItHoldsOverARestart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.start(t)
	dir := n.served(t, some("a", 4096))
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", 1000*mib)
	require.NoError(t, h.Process.Signal(unix.SIGSTOP))
	first.stop()
	n.start(t)
	c := attach(t, dir)
	require.EqualValues(t, 1000*mib, c.Charge())
	require.EqualValues(t, 2, c.Ledger.SlotsUsed.Load(), "it sees who came since, although it has its old grant")
	require.NoError(t, h.Process.Signal(unix.SIGCONT))
	require.Equal(t, "false", h.ask(t, "take", 3097*mib))
	require.Equal(t, "slot 0 ok", h.ask(t, "again", dir))
	require.NoError(t, h.Process.Signal(unix.SIGSTOP))
	require.NoError(t, h.Process.Kill())
	eventually(t, func() bool { return c.Charge() == 0 }, "its end is noticed")
}

func TestAProcessBringsTheLedgerThatTheArbiterCannotFind(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.deny() // no rights to look into processes
	first := n.start(t)
	dir := n.served(t, some("a", 4096))
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", 1000*mib)
	first.stop()
	n.start(t)
	require.Equal(t, "slot 0 ok", h.ask(t, "again", dir))
	c := attach(t, dir)
	require.EqualValues(t, 1000*mib, c.Charge())
}

func TestWhoDoesNotComeBackIsCharged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fails error
		want  uint64
	}{
		"with what the card holds for it":                      {nil, 700 * mib},
		"with all that there is where the card cannot be read": {os.ErrDeadlineExceeded, 4096 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.deny()
			first := n.start(t)
			dir := n.served(t, some("a", 4096))
			h := startHelper(t)
			h.ask(t, "attach", dir)
			h.ask(t, "take", 600*mib)
			n.usage.set(h.pid(), 700*mib)
			n.usage.fail(tc.fails)
			first.stop()
			n.start(t)
			c := attach(t, dir) // waits until it is given up
			require.EqualValues(t, 1, c.Welcome.Slot)
			require.Equal(t, tc.want, c.Charge())
			require.Equal(t, "slot 0 moved", h.ask(t, "again", dir), "its ledger is not this one")
			require.Equal(t, tc.want+600*mib, c.Charge(), "too much until it is measured, and never too little")
		})
	}
}

func TestAForgedLedgerIsNotTakenOver(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.deny()
	first := n.start(t)
	dir := n.served(t, some("a", 4096))
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", 1000*mib)
	first.stop()
	n.start(t)
	require.Equal(t, "slot 0 moved", h.ask(t, "forge", dir))
	c := attach(t, dir)
	require.EqualValues(t, 1, c.Welcome.Slot)
	require.Zero(t, c.Charge(), "what the forged ledger said")
	require.Equal(t, c.Welcome.Nonce, c.Slot().Attached.Load())
}

func TestAConnectionThatWasLostIsMadeAnew(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	require.True(t, c.Take(mib))
	nonce := c.Welcome.Nonce
	for _, name := range []string{"with its ledger", "after another one"} {
		c = again(t, c, dir)
		require.Equal(t, wire.OK, c.Welcome.Status, name)
		require.Equal(t, nonce, c.Welcome.Nonce, name)
	}
	require.EqualValues(t, mib, c.Charge())
	hello := wireclient.Hello(wire.RoleAgain)
	hello.Slot, hello.Nonce = c.Welcome.Slot, nonce
	require.Equal(t, wire.OK, connect(t, dir, hello).Welcome.Status, "without, as its descriptors were closed")
	hello.Nonce++
	stranger := connect(t, dir, hello)
	require.Equal(t, wire.Moved, stranger.Welcome.Status, "with another's number")
	require.EqualValues(t, 1, stranger.Welcome.Slot)
	hello.Slot = wire.MaxSlots
	require.Equal(t, wire.Moved, connect(t, dir, hello).Welcome.Status, "with a slot that cannot be")
}

func TestOnlyTheLastConnectionSettles(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	c.Slot().Reserve.Store(100 * mib)
	reading, goOn := make(chan struct{}), make(chan struct{})
	n.usage.intervene(func() {
		reading <- struct{}{}
		<-goOn
	})
	_, err := c.Conn.Write(wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: wire.OpMeasure, ID: 1, Settle: 100 * mib}))
	require.NoError(t, err)
	<-reading
	back := again(t, c, dir)
	n.usage.intervene(nil)
	close(goOn)
	_, err = c.Conn.Read(make([]byte, 64))
	require.Error(t, err, "the first connection has ended")
	_, err = back.Measure(0)
	require.NoError(t, err)
	require.EqualValues(t, 100*mib, back.Slot().Reserve.Load(), "what it asked for did not happen")
}

func TestRostersOfEndedSharesGo(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.start(t)
	a, b := some("a", 4096), some("b", 4096)
	n.served(t, a)
	n.served(t, b)
	roster := func(s share.Share) string { return filepath.Join(n.run, string(s.Key())+".roster") }
	require.FileExists(t, roster(a))
	require.NoError(t, n.dirs.Remove(a.Key()))
	eventually(t, func() bool { return !exists(roster(a)) }, "a share ends")
	first.stop()
	require.FileExists(t, roster(b))
	require.NoError(t, n.dirs.Remove(b.Key()))
	n.start(t)
	eventually(t, func() bool { return !exists(roster(b)) }, "that of a share that ended meanwhile goes")
}

func TestADamagedRosterIsMadeAnew(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{
		"empty": {}, "short": []byte("TCTRSTR1"), "another": make([]byte, 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			s := some("a", 4096)
			require.NoError(t, os.MkdirAll(n.run, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(n.run, string(s.Key())+".roster"), content, 0o600))
			n.start(t)
			require.Zero(t, attach(t, n.served(t, s)).Welcome.Slot)
		})
	}
}

func TestASecondArbiterStandsBy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.start(t)
	dir := n.served(t, some("a", 4096))
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", mib)
	second := n.start(t) // ready, as it stands by
	socket := filepath.Join(dir, wire.SocketName)
	before, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, "slot 1 ok", startHelper(t).ask(t, "attach", dir), "the first one serves")
	first.stop()
	eventually(t, func() bool {
		after, err := os.Stat(socket)
		return err == nil && !os.SameFile(before, after)
	}, "the second one serves")
	require.Equal(t, "slot 0 ok", h.ask(t, "again", dir))
	eventually(t, func() bool { return second.Ready() == nil }, "it has seen to all shares")
	require.NoError(t, second.Alive(t.Context()))
	second.stop()
	require.Error(t, second.Ready())
}
