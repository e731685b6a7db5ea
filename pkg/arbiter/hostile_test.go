// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

func TestNobodyCanWriteTheGrantOrShrinkAPage(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	c := attach(t, n.served(t, some("a", 4096)))
	for i, file := range c.Files {
		fd := int(file.Fd())
		require.Error(t, unix.Ftruncate(fd, 0), "page %d", i)
		require.Error(t, unix.Ftruncate(fd, 1<<30), "page %d", i)
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
		require.ErrorIs(t, err, unix.EPERM, "page %d", i)
	}
	for _, path := range []string{fmt.Sprintf("/proc/self/fd/%d", c.Files[0].Fd())} {
		opened, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = opened.WriteAt([]byte{1}, 0)
		require.Error(t, err)
		_, err = unix.Mmap(int(opened.Fd()), 0, wire.GrantSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.ErrorIs(t, err, unix.EPERM)
		require.NoError(t, opened.Close())
	}
}

func TestMessagesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	hello := func(change func(*wire.Hello)) []byte {
		h := wireclient.Hello(wire.RoleProcess)
		change(&h)
		return wire.Encode(h)
	}
	for name, tc := range map[string]struct {
		message []byte
		status  wire.Status
		says    string
	}{
		"too short":                  {[]byte{1, 2, 3}, wire.EInvalid, "3 bytes, not 32"},
		"too long":                   {make([]byte, 4096), wire.EInvalid, "too long"},
		"of another protocol":        {make([]byte, 32), wire.EInvalid, "begins with 0x0"},
		"of a version to come":       {hello(func(h *wire.Hello) { h.Version = 2 }), wire.EVersion, "this node's arbiter speaks version 1, not 2"},
		"of version 0":               {hello(func(h *wire.Hello) { h.Version = 0 }), wire.EVersion, "not 0"},
		"longer, of a version ahead": {append(hello(func(h *wire.Hello) { h.Version = 2 }), 0, 0, 0, 0), wire.EVersion, "speaks version 1"},
		"with a role that is none":   {hello(func(h *wire.Hello) { h.Role = 4 }), wire.EInvalid, "role 4 is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.start(t)
			dir := n.served(t, some("a", 4096))
			conn, err := wireclient.Dial(t.Context(), dir)
			require.NoError(t, err)
			defer conn.Close() //nolint:errcheck // a test's
			_, err = conn.Write(tc.message)
			require.NoError(t, err)
			answer := make([]byte, 512)
			count, err := conn.Read(answer)
			require.NoError(t, err)
			welcome, err := wire.Decode[wire.Welcome](answer[:count])
			require.NoError(t, err)
			require.Equal(t, tc.status, welcome.Status)
			require.Contains(t, wire.Text(welcome.Reason[:]), tc.says)
			_, err = conn.Read(answer)
			require.Error(t, err, "nothing else comes")
			attach(t, dir)
		})
	}
}

func TestRequestsThatMakeNoSenseEndTheConnectionOnly(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	_, err := c.Conn.Write(wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: 77, ID: 5}))
	require.NoError(t, err)
	answer := make([]byte, 64)
	count, err := c.Conn.Read(answer)
	require.NoError(t, err)
	reply, err := wire.Decode[wire.Reply](answer[:count])
	require.NoError(t, err)
	require.Equal(t, wire.Reply{Magic: wire.MessageMagic, Status: wire.EInvalid, ID: 5}, reply)
	require.True(t, c.Take(mib))
	_, err = c.Conn.Write([]byte("nonsense"))
	require.NoError(t, err)
	_, err = c.Conn.Read(answer)
	require.Error(t, err)
	c = again(t, c, dir)
	require.EqualValues(t, mib, c.Charge(), "the process has its slot still")
	_, _, err = c.Conn.WriteMsgUnix(wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: wire.OpMeasure}), unix.UnixRights(0), nil)
	require.NoError(t, err)
	_, err = c.Conn.Read(answer)
	require.Error(t, err, "nobody asked for descriptors")
}

func TestDescriptorsThatNobodyAskedForAreClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	read, write, err := os.Pipe()
	require.NoError(t, err)
	for _, files := range [][]*os.File{{write}, {write, write}, {write, write, write, write, write, write}} {
		c, err := wireclient.Connect(t.Context(), dir, wireclient.Hello(wire.RoleProbe), files...)
		if err == nil {
			require.NoError(t, c.Close())
		}
	}
	c, err := wireclient.Dial(t.Context(), dir)
	require.NoError(t, err)
	sendNothingBut(t, c, unix.UnixRights(int(write.Fd()), int(write.Fd())))
	_, err = c.Read(make([]byte, 512))
	require.NoError(t, err, "the arbiter refuses it")
	require.NoError(t, c.Close())

	require.NoError(t, write.Close())
	require.NoError(t, read.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = read.Read(make([]byte, 1)) // ends when nobody has the other end
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, read.Close())
}

// sendNothingBut sends a message without a byte, which the packages of Go do not.
func sendNothingBut(t *testing.T, c *net.UnixConn, oob []byte) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	message := unix.Msghdr{Control: &oob[0], Controllen: uint64(len(oob))}
	require.NoError(t, raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&message)), unix.MSG_NOSIGNAL)
		require.Zero(t, errno)
	}))
}

func TestAClientThatDoesNotReadHarmsNobody(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	request := wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: 77})
	var err error
	for err == nil { // until the arbiter ends the connection
		_, err = c.Conn.Write(request)
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.EqualValues(t, 1, c.Grant.SlotsUsed.Load(), "the process keeps its slot")
	attach(t, dir)
}

func TestAStoppedClientHarmsNobody(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	h := startHelper(t)
	h.ask(t, "attach", dir)
	h.ask(t, "take", mib)
	require.NoError(t, h.Process.Signal(unix.SIGSTOP))
	c := attach(t, dir)
	require.EqualValues(t, mib, c.Charge())
	_, err := c.Measure(0)
	require.NoError(t, err)
	n.prepare(t, some("a", 2048))
	eventually(t, func() bool { return c.Grant.MemoryLimit.Load() == 2048*mib }, "the limit changes")
}

func TestSilentClientsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	for range 200 {
		conn, err := wireclient.Dial(t.Context(), dir)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	attach(t, dir)
}

// scribbled are contents of a ledger that nobody should write.
func scribbled(page []byte, round int) {
	switch round % 3 {
	case 0:
		scribble(page)
	case 1:
		clear(page)
	case 2:
		random := rand.New(rand.NewPCG(uint64(round), 1))
		for i := range page {
			page[i] = byte(random.Uint32())
		}
	}
}

func TestScribblingHarmsTheScribblersShareOnly(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	a := n.start(t)
	hostile, peaceful := n.served(t, some("hostile", 1024)), n.served(t, some("peaceful", 1024))
	victim := startHelper(t)
	victim.ask(t, "attach", peaceful)
	victim.ask(t, "take", 500*mib)
	n.usage.set(victim.pid(), 500*mib)
	for round := range 12 {
		h := startHelper(t)
		h.ask(t, "attach", hostile)
		n.usage.set(h.pid(), 100*mib)
		c := connect(t, hostile, wireclient.Hello(wire.RoleObserver))
		scribbled(unsafe.Slice((*byte)(unsafe.Pointer(c.Ledger)), wire.LedgerSize), round)
		answer := h.ask(t, "measure", uint64(1)<<63)
		require.Contains(t, answer, "<nil>", "the arbiter answers whatever the page says")
		shares, _ := a.Uses()
		require.Len(t, shares, 2)
		n.usage.set(h.pid(), 0)
		h.end()
		require.NoError(t, c.Close())
	}
	require.Equal(t, fmt.Sprint(500*mib), victim.ask(t, "charge"))
	require.Equal(t, "true", victim.ask(t, "take", 524*mib))
	require.Equal(t, "false", victim.ask(t, "take", mib))
	require.False(t, contains(n.events.all(), "peaceful"), n.events.all())
}

func TestOneShareCannotTakeAllConnections(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	greedy, other := n.served(t, some("greedy", 1024)), n.served(t, some("other", 1024))
	var refusedAt int
	for i := range 4000 {
		conn, err := wireclient.Dial(t.Context(), greedy)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write(wire.Encode(wireclient.Hello(wire.RoleObserver)))
		if err == nil {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(patient)))
			_, err = conn.Read(make([]byte, 512))
		}
		if err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "connections that are too many are ended, not kept waiting")
			refusedAt = i
			break
		}
	}
	require.Positive(t, refusedAt, "there is a limit")
	attach(t, other)
}
