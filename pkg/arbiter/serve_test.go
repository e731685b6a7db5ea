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
