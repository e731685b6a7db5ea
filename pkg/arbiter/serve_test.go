// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

func TestAProcessGetsItsPages(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	require.EqualValues(t, os.Getpid(), c.Welcome.HostPID)
	require.EqualValues(t, 4096*mib, c.Grant.MemoryLimit.Load())
	require.EqualValues(t, contextBytes, c.Grant.ContextEstimate.Load())
	require.EqualValues(t, 1, c.Grant.SlotsUsed.Load())
	require.Equal(t, c.Welcome.Nonce, c.Slot().Attached.Load())
	require.True(t, c.Take(4096*mib))
	require.False(t, c.Take(1))
	require.Equal(t, wire.DemandMagic, c.Demand.Magic)
}

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
}

func TestAMeasurementReplacesTheEstimate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	require.True(t, c.Take(100*mib))
	c.Slot().Reserve.Store(512 * mib)
	n.usage.set(os.Getpid(), 440*mib)
	reply, err := c.Measure(512 * mib)
	require.NoError(t, err)
	require.Equal(t, wire.Reply{Magic: wire.MessageMagic, ID: 1, Used: 440 * mib, Implicit: 340 * mib}, reply)
	require.EqualValues(t, 340*mib, c.Slot().Implicit.Load())
	require.Zero(t, c.Slot().Reserve.Load())
	require.EqualValues(t, 340*mib, c.Grant.ContextEstimate.Load(), "what a context takes is known now")
}

func TestAShareThatEndsTakesItsSocketAlong(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	s := some("a", 4096)
	dir := n.served(t, s)
	c := attach(t, dir)
	require.NoError(t, n.dirs.Remove(s.Key()))
	eventually(t, func() bool { return c.Grant.Flags.Load() == wire.GrantEnded }, "its processes are told")
	_, err := c.Conn.Read(make([]byte, 1))
	require.Error(t, err, "and the connection has ended")
	require.False(t, exists(dir))
}

func TestANewLimitReachesTheProcesses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	n.prepare(t, some("a", 2048))
	eventually(t, func() bool { return c.Grant.MemoryLimit.Load() == 2048*mib }, "the limit changes")
	n.prepare(t, some("a", 2048, func(s *share.Share) { s.Whole = true }))
	eventually(t, func() bool { return c.Grant.MemoryLimit.Load() == wire.NoLimit }, "a whole card has none")
	_, err := wireclient.Attach(t.Context(), dir)
	require.NoError(t, err)
}
