// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// hand is an arbiter in the hand of the test: it gives pages to whoever comes, measures
// nothing, and writes the lease word as it is told.
type hand struct {
	t        *testing.T
	share    rig.Share
	grant    page[wire.Grant]
	ledger   page[wire.Ledger]
	listener *net.UnixListener

	mu      sync.Mutex
	conns   map[*net.UnixConn]struct{}
	demands []page[wire.Demand]
	unmap   []func()
	beats   bool
	ended   bool
	done    sync.WaitGroup
	stop    chan struct{}
}

// page is shared memory.
type page[P wire.Page] struct {
	at     *P
	file   *os.File
	memory []byte
}

// newPage makes one that is there until the hand has gone: it beats in it.
func newPage[P wire.Page](h *hand, size int) page[P] {
	t := h.t
	t.Helper()
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "page")
	require.NoError(t, file.Truncate(int64(size)))
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	at, err := wire.In[P](memory)
	require.NoError(t, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unmap = append(h.unmap, func() {
		require.NoError(t, unix.Munmap(memory))
		require.NoError(t, file.Close())
	})
	return page[P]{at, file, memory}
}

// window that the hand names, as the arbiter would for one process.
const handWindow = time.Millisecond

func newHand(t *testing.T, s rig.Share) *hand {
	t.Helper()
	h := &hand{t: t, share: s, conns: map[*net.UnixConn]struct{}{}, beats: true, stop: make(chan struct{})}
	h.newGrant()
	h.ledger = newPage[wire.Ledger](h, wire.LedgerSize)
	h.ledger.at.Magic, h.ledger.at.Version, h.ledger.at.Slots = wire.LedgerMagic, wire.ContractVersion, wire.MaxSlots
	h.serve()
	h.done.Go(h.beat)
	t.Cleanup(func() {
		close(h.stop)
		h.disappear()
		h.done.Wait()
		for _, unmap := range h.unmap {
			unmap()
		}
	})
	return h
}

func (h *hand) newGrant() {
	grant := newPage[wire.Grant](h, wire.GrantSize)
	g := grant.at
	g.Magic, g.Version = wire.GrantMagic, wire.ContractVersion
	copy(g.CardUUID[:], h.share.Card.Config().UUID)
	g.MemoryLimit.Store(h.share.Limit)
	g.Window.Store(uint64(handWindow))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grant = grant
}

// serve begins to listen.
func (h *hand) serve() {
	dir, err := os.Open(h.share.Dir)
	require.NoError(h.t, err)
	defer dir.Close() //nolint:errcheck // only a way to a short path
	path := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), wire.SocketName)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	require.NoError(h.t, err)
	listener.SetUnlinkOnClose(false)
	require.NoError(h.t, os.Chmod(filepath.Join(h.share.Dir, wire.SocketName), 0o666))
	h.mu.Lock()
	h.listener, h.ended = listener, false
	h.mu.Unlock()
	h.done.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			h.mu.Lock()
			if h.ended {
				h.mu.Unlock()
				_ = conn.Close()
				return
			}
			h.conns[conn] = struct{}{}
			h.mu.Unlock()
			h.done.Go(func() { h.answer(conn) })
		}
	})
}

// disappear ends every connection and listens no more, as an arbiter that is killed.
func (h *hand) disappear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	_ = h.listener.Close()
	_ = os.Remove(filepath.Join(h.share.Dir, wire.SocketName))
	for conn := range h.conns {
		_ = conn.Close()
		delete(h.conns, conn)
	}
}

func (h *hand) answer(conn *net.UnixConn) {
	slot, ok := h.welcome(conn)
	for ok {
		message := make([]byte, 512)
		n, err := conn.Read(message)
		if err != nil || n == 0 {
			return
		}
		request, err := wire.Decode[wire.Request](message[:n])
		if err != nil {
			return
		}
		slot.Reserve.Add(-request.Settle)
		reply := wire.Reply{Magic: wire.MessageMagic, ID: request.ID, Used: slot.Committed.Load()}
		_, err = conn.Write(wire.Encode(reply))
		ok = err == nil
	}
}

func (h *hand) welcome(conn *net.UnixConn) (*wire.Slot, bool) {
	message, oob := make([]byte, 512), make([]byte, 256)
	n, oobn, _, _, err := conn.ReadMsgUnix(message, oob)
	if err != nil {
		return nil, false
	}
	closeAll(oob[:oobn])
	hello, err := wire.Decode[wire.Hello](message[:n])
	if err != nil {
		return nil, false
	}
	demand := newPage[wire.Demand](h, wire.DemandSize)
	demand.at.Magic, demand.at.Version = wire.DemandMagic, wire.ContractVersion
	h.mu.Lock()
	defer h.mu.Unlock()
	number := uint32(len(h.demands))
	if hello.Role == wire.RoleAgain {
		number = hello.Slot
	}
	h.demands = append(h.demands, demand)
	h.grant.at.SlotsUsed.Store(max(h.grant.at.SlotsUsed.Load(), number+1))
	welcome := wire.Welcome{Magic: wire.MessageMagic, Version: wire.ContractVersion, Slot: number, Nonce: uint64(number) + 1}
	rights := unix.UnixRights(int(h.grant.file.Fd()), int(h.ledger.file.Fd()), int(demand.file.Fd()))
	_, _, err = conn.WriteMsgUnix(wire.Encode(welcome), rights, nil)
	return &h.ledger.at.Slot[number], err == nil
}

func closeAll(oob []byte) {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for _, control := range controls {
		fds, err := unix.ParseUnixRights(&control)
		for i := 0; err == nil && i < len(fds); i++ {
			_ = unix.Close(fds[i])
		}
	}
}

// beat says all the time that the arbiter is there.
func (h *hand) beat() {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		h.mu.Lock()
		if h.beats {
			h.grant.at.Beat.Store(uint64(clock()))
		}
		h.mu.Unlock()
		select {
		case <-ticker.C:
		case <-h.stop:
			return
		}
	}
}

// setBeats tells whether the arbiter is to show itself.
func (h *hand) setBeats(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beats = on
}

// clock is CLOCK_MONOTONIC, as in pages and in the truth of cards.
func clock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// futexWake wakes who waits for a word.
func futexWake(word unsafe.Pointer) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(word), 1 /* FUTEX_WAKE */, 1<<30, 0, 0, 0)
}

// set writes the state and the bits besides it, counts, and wakes. It returns the word.
func (h *hand) set(bits uint32) uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	lease := &h.grant.at.Lease
	word := (lease.Load()&^(wire.LeaseCount-1) + wire.LeaseCount) | bits
	lease.Store(word)
	futexWake(unsafe.Pointer(lease))
	return word
}

// demand of the process that came as the n-th.
func (h *hand) demand(n int) *wire.Demand {
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Greater(h.t, len(h.demands), n, "attachments")
	return h.demands[n].at
}

// last demand page that was handed out.
func (h *hand) last() *wire.Demand {
	h.mu.Lock()
	defer h.mu.Unlock()
	require.NotEmpty(h.t, h.demands)
	return h.demands[len(h.demands)-1].at
}

// close closes the lease and waits until the process says that it obeys.
func (h *hand) close(d *wire.Demand) time.Duration {
	h.t.Helper()
	word := h.set(wire.LeaseClosed)
	// A process says so a little before, and takes it back where that was wrong.
	until(h.t, "the closed lease to be obeyed", func() bool { return d.Ends.Load() == 0 && d.Drained.Load() == word || d.Wants.Load() == 0 })
	return clock()
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	require.NoError(t, rig.Until(what, func() (bool, error) { return so(), nil }))
}

// gated is a share whose arbiter is the test, on a card of its own.
type gated struct {
	*hand
	rig *rig.Rig
	box *sandbox.Box
}

func newGated(t *testing.T) gated {
	t.Helper()
	need(t)
	r, err := rig.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	c, err := r.Card(simcard.Config{})
	require.NoError(t, err)
	s, err := r.Share(c, 1024)
	require.NoError(t, err)
	h := newHand(t, s)
	return gated{h, r, newBox(t, r, s)}
}

// runs of kernels that began after that time.
func (g gated) runs(after time.Duration) []simcard.Run {
	var runs []simcard.Run
	for _, run := range g.share.Card.Runs(0) {
		if run.Start > after {
			runs = append(runs, run)
		}
	}
	return runs
}

// ran is for how long the card did what began after that time.
func (g gated) ran(after time.Duration) (busy time.Duration) {
	for _, run := range g.runs(after) {
		busy += run.End - run.Start
	}
	return busy
}

// busyBetween tells whether the card worked in that stretch of time.
func (g gated) busyBetween(from, to time.Duration) bool {
	for _, run := range g.share.Card.Runs(0) {
		if run.Start < to && run.End > from {
			return true
		}
	}
	return false
}
