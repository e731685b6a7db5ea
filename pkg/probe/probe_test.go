// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/probe"
	"github.com/tranche-dra/tranche/pkg/wire"
)

const (
	patient   = 30 * time.Second // a bound for tests that would hang, never a measure
	impatient = 50 * time.Millisecond
)

// shareDir has a path that is longer than the address of a socket.
func shareDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("k", 120))
	require.NoError(t, os.Mkdir(dir, 0o755))
	return dir
}

// listen opens the socket of a share.
func listen(t *testing.T, dir string) *net.UnixListener {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	require.NoError(t, err)
	defer unix.Close(fd) //nolint:errcheck // a test's
	address := &net.UnixAddr{Net: "unixpacket", Name: fmt.Sprintf("/proc/self/fd/%d/%s", fd, wire.SocketName)}
	listener, err := net.ListenUnix("unixpacket", address)
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// answer serves a share: each hello gets what say makes of it, nothing where
// that is nil.
func answer(t *testing.T, listener *net.UnixListener, say func(wire.Hello) []byte) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			data := make([]byte, 256)
			n, err := conn.Read(data)
			hello, decoded := wire.Decode[wire.Hello](data[:n])
			if err = errors.Join(err, decoded); err == nil {
				if said := say(hello); said != nil {
					_, _ = conn.Write(said)
				}
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
}

func welcome(status wire.Status, reason string) []byte {
	return wire.Encode(wire.Welcome{Magic: wire.MessageMagic, Version: wire.ContractVersion, Status: status, Reason: wire.Reason(reason)})
}

func TestAShareThatIsServed(t *testing.T) {
	t.Parallel()
	dir := shareDir(t)
	asked := make(chan wire.Hello, 1)
	answer(t, listen(t, dir), func(h wire.Hello) []byte {
		asked <- h
		return welcome(wire.OK, "")
	})
	require.NoError(t, probe.Arbiter{Patience: patient}.Await(t.Context(), "key", dir))
	hello := <-asked
	require.Equal(t, wire.RoleProbe, hello.Role, "it takes no slot")
	require.EqualValues(t, wire.ContractVersion, hello.Version)
}

func TestASocketThatComesLaterIsFound(t *testing.T) {
	t.Parallel()
	dir := shareDir(t)
	served := make(chan error, 1)
	go func() { served <- probe.Arbiter{Patience: patient}.Await(t.Context(), "key", dir) }()
	// One that died has left its socket, and its successor puts another there.
	require.NoError(t, listen(t, dir).Close())
	require.ErrorIs(t, probe.Ask(t.Context(), dir), unix.ECONNREFUSED)
	require.NoError(t, os.Remove(filepath.Join(dir, wire.SocketName)))
	refusals := 3
	answer(t, listen(t, dir), func(wire.Hello) []byte {
		if refusals--; refusals >= 0 {
			return welcome(wire.EEnded, "there is no share.json")
		}
		return welcome(wire.OK, "")
	})
	require.NoError(t, <-served)
}

func TestAShareThatIsNotServed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		arbiter func(*testing.T, string)
		says    string
	}{
		{"no socket", func(*testing.T, string) {}, "no such file or directory"},
		{"a socket that nobody has open", func(t *testing.T, dir string) { require.NoError(t, listen(t, dir).Close()) }, "connection refused"},
		{"an arbiter of another version", func(t *testing.T, dir string) {
			answer(t, listen(t, dir), func(wire.Hello) []byte { return welcome(wire.EVersion, "this arbiter speaks version 7") })
		}, `the answer is "version": this arbiter speaks version 7`},
		{"an arbiter that hangs up", func(t *testing.T, dir string) {
			answer(t, listen(t, dir), func(wire.Hello) []byte { return nil })
		}, "EOF"},
		{"somebody else", func(t *testing.T, dir string) {
			answer(t, listen(t, dir), func(wire.Hello) []byte { return []byte("220 smtp") })
		}, "read message"},
		{"an arbiter that is stopped", func(t *testing.T, dir string) { listen(t, dir) }, "i/o timeout"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := shareDir(t)
			row.arbiter(t, dir)
			err := probe.Arbiter{Patience: impatient}.Await(t.Context(), "a-key", dir)
			require.ErrorIs(t, err, probe.ErrNotServed)
			for _, says := range []string{row.says, "a-key", filepath.Join(dir, "arbiter.sock"), probe.Remedy} {
				require.ErrorContains(t, err, says)
			}
			require.NotContains(t, err.Error(), "/proc/self/fd")
		})
	}
}

func TestACallerWhoGivesUpIsNotKept(t *testing.T) {
	t.Parallel()
	dir := shareDir(t)
	listen(t, dir) // and nobody answers
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- probe.Arbiter{Patience: time.Hour}.Await(ctx, "key", dir) }()
	cancel()
	require.ErrorIs(t, <-done, probe.ErrNotServed)
}
