// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// names of what is in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAnyUserMayConnect(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	info, err := os.Stat(filepath.Join(dir, wire.SocketName))
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o666, info.Mode())
	require.Equal(t, []string{"arbiter.sock", "share.json"}, names(t, dir))
}

func TestSharesThatWereThereBefore(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, b := n.prepare(t, some("a", 4096)), n.prepare(t, some("b", 2048))
	// A socket, and half of one, whose arbiter was killed.
	for _, name := range []string{wire.SocketName, wire.SocketName + ".new"} {
		opened, err := os.Open(a)
		require.NoError(t, err)
		t.Cleanup(func() { _ = opened.Close() })
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "unixpacket", fmt.Sprintf("/proc/self/fd/%d/%s", opened.Fd(), name))
		require.NoError(t, err)
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		require.NoError(t, listener.Close())
	}
	n.start(t)
	require.EqualValues(t, 4096*mib, attach(t, a).Grant.MemoryLimit.Load())
	require.EqualValues(t, 2048*mib, attach(t, b).Grant.MemoryLimit.Load())
	require.Equal(t, []string{"arbiter.sock", "share.json"}, names(t, a))
}

func TestASocketThatSomebodyRemovedIsMadeAnew(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configure = func(c *arbiter.Config) { c.Rescan = time.Millisecond }
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	require.NoError(t, os.Remove(filepath.Join(dir, wire.SocketName)))
	eventually(t, func() bool { return exists(filepath.Join(dir, wire.SocketName)) }, "the socket is back")
	attach(t, dir)
	require.True(t, c.Take(mib))
}

func TestNothingIsMadeWhereNoShareIs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configure = func(c *arbiter.Config) { c.Rescan = time.Millisecond }
	empty := n.dirs.Path(some("empty", 1).Key())
	require.NoError(t, os.Mkdir(empty, 0o750))
	other := filepath.Join(n.shares, "lost+found")
	require.NoError(t, os.Mkdir(other, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(other, cdi.ShareFileName), []byte("{}"), 0o600))
	require.NoError(t, os.WriteFile(n.dirs.Path(some("file", 1).Key()), nil, 0o600))
	n.start(t)
	n.served(t, some("a", 4096)) // which is looked at after the others
	require.Empty(t, names(t, empty))
	require.Equal(t, []string{"share.json"}, names(t, other))
	require.Empty(t, n.events.all())
}

func TestAShareThatIsNotUnderstoodIsNotServed(t *testing.T) {
	t.Parallel()
	change := func(old, replacement string) func(string) string {
		return func(text string) string { return strings.ReplaceAll(text, old, replacement) }
	}
	for name, tc := range map[string]struct {
		change func(string) string
		says   string
	}{
		"of a version to come": {change(`"version": 1`, `"version": 2`), "team-a/a ShareNotServed: share 0"},
		"of another share":     {change(`-be7782e102"`, `-be7782e103"`), "it is of share 0"},
		"damaged":              {func(string) string { return "{" }, "node ShareNotServed: share 0"},
		"without a limit's sense": {
			change(`"memoryMiB": 4096`, `"memoryMiB": -1`), "limits.memoryMiB is -1 MiB, below zero",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.configure = func(c *arbiter.Config) { c.Rescan = time.Millisecond }
			s := some("a", 4096)
			dir := n.prepare(t, s)
			path := filepath.Join(dir, cdi.ShareFileName)
			right, err := os.ReadFile(path)
			require.NoError(t, err)
			wrong := tc.change(string(right))
			require.NotEqual(t, string(right), wrong)
			_, err = durable.Files{}.Write(path, []byte(wrong), 0o444)
			require.NoError(t, err)
			n.start(t)
			eventually(t, func() bool { return contains(n.events.all(), tc.says) }, "somebody is told")
			require.Equal(t, []string{"share.json"}, names(t, dir))
			n.served(t, some("b", 1)) // and looked at again
			require.Len(t, n.events.all(), 1, "it is told once")

			n.prepare(t, s)
			eventually(t, func() bool { return exists(filepath.Join(dir, wire.SocketName)) }, "a share.json that is right is served")
			c := attach(t, dir)
			require.True(t, c.Take(mib))
			_, err = durable.Files{}.Write(path, []byte(wrong), 0o444)
			require.NoError(t, err)
			eventually(t, func() bool { return !exists(filepath.Join(dir, wire.SocketName)) }, "nobody new is served")
			require.True(t, c.Take(mib), "who is there goes on")
			require.Zero(t, c.Grant.Flags.Load())
		})
	}
}

func TestADirectoryThatIsMadeAnewIsAnotherShare(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	s := some("a", 4096)
	for range 20 {
		dir := n.served(t, s)
		c := attach(t, dir)
		require.True(t, c.Take(4096*mib))
		require.NoError(t, n.dirs.Remove(s.Key()))
		eventually(t, func() bool { return c.Grant.Flags.Load() == wire.GrantEnded }, "the share has ended")
	}
	require.Empty(t, names(t, n.shares))
}

func TestAnotherCardUnderTheSameKeyIsAnotherShare(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	n.prepare(t, some("a", 4096, func(s *share.Share) { s.Card = "GPU-other" }))
	eventually(t, func() bool { return c.Grant.Flags.Load() == wire.GrantEnded }, "the first has ended")
	eventually(t, func() bool {
		other, err := wireclient.Attach(t.Context(), dir)
		return err == nil && wire.Text(other.Grant.CardUUID[:]) == "GPU-other" && other.Close() == nil
	}, "the other is served")
}

func TestAnObserverLooksOn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	o := connect(t, dir, wireclient.Hello(wire.RoleObserver))
	require.Len(t, o.Files, 2)
	require.Zero(t, o.Grant.SlotsUsed.Load(), "it takes no slot")
	require.True(t, attach(t, dir).Take(mib))
	require.EqualValues(t, mib, o.Charge())
	_, err := o.Conn.Write(wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: wire.OpMeasure}))
	require.NoError(t, err)
	_, err = o.Conn.Read(make([]byte, 64))
	require.Error(t, err, "it has nothing to ask for")
}

func TestAProbeGetsNoPages(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	p := connect(t, n.served(t, some("a", 4096)), wireclient.Hello(wire.RoleProbe))
	require.Empty(t, p.Files)
	require.EqualValues(t, wire.ContractVersion, p.Welcome.Version)
}
