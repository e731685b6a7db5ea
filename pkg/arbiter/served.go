// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"os"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// served is a share whose processes are served, from when its share.json is
// there until it has gone.
type served struct {
	key     share.Key
	path    string
	arbiter *Arbiter
	card    *hostedCard

	ctx  context.Context // ends with the share
	stop context.CancelFunc
	work sync.WaitGroup
	// settled is closed once the processes that an earlier arbiter knew have
	// come back or are given up.
	settled chan struct{}

	// socket is the directory watch's.
	socket *socket

	// Guarded by card.mu.
	document cdi.ShareDocument
	withheld bool
	ended    bool
	grant    *page[wire.Grant]
	ledger   *page[wire.Ledger] // nil until a process needs it
	roster   *roster
	// attached by slot, as long as the last one that is taken.
	attached []*attachment
	missing  int
	// departed are slots of processes that ended while no arbiter ran.
	departed    []uint32
	kept        kept
	connections map[*connection]struct{}
	contexts    observed
	counts      counts
	// findings of the watchdog that stand.
	findings map[Kind]int

	// Floods of connections and of requests are slowed down.
	connects, requests pace
}

// counts are what happened to a share.
type counts struct {
	refused, reaped uint64
}

// openShare makes what the share needs, and takes note of who an earlier
// arbiter served. It does not serve yet.
func (a *Arbiter) openShare(ctx context.Context, key share.Key, path string, document cdi.ShareDocument) (*served, error) {
	s := &served{
		key: key, path: path, arbiter: a, document: document, settled: make(chan struct{}), connections: map[*connection]struct{}{},
		connects: newPace(connectBurst, connectRate), requests: newPace(requestBurst, requestRate),
	}
	var err error
	if s.roster, err = openRoster(a.config.RunDir, key, a.boot); err != nil {
		return nil, err
	}
	s.card = a.cardOf(document)
	if s.grant, err = newGrant(string(document.Card.UUID), func(g *wire.Grant) {
		g.MemoryLimit.Store(limitOf(document))
		g.ContextEstimate.Store(s.card.estimate)
	}); err != nil {
		return nil, errors.Join(err, s.roster.close(false))
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	s.card.shares[key] = s
	s.card.estimateAnew()
	s.remember()
	s.schedule()
	return s, nil
}

// limitOf is the share's limit in bytes.
func limitOf(d cdi.ShareDocument) uint64 {
	if d.Whole {
		return wire.NoLimit
	}
	return uint64(d.Limits.Memory.Bytes()) //nolint:gosec // not negative, as the document was checked
}

// change takes a new content of share.json.
func (s *served) change(document cdi.ShareDocument) {
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	if limit := limitOf(document); limit != limitOf(s.document) {
		klog.FromContext(s.ctx).Info("Limit changes", "share", s.key, "bytes", limit)
		s.grant.words.MemoryLimit.Store(limit)
	}
	if document != s.document {
		s.document = document
		s.schedule()
	}
}

// close ends the service. Where the share itself has ended its processes are
// told, and the roster goes; else the next arbiter finds what it needs.
func (s *served) close(shareEnded bool) {
	s.card.mu.Lock()
	if shareEnded {
		s.grant.words.Flags.Or(wire.GrantEnded)
	}
	s.ended = true
	for c := range s.connections {
		c.close()
	}
	for _, a := range s.attached {
		if a != nil {
			_ = a.pidfd.Close() // which ends the wait for its end
		}
	}
	s.card.mu.Unlock()
	s.stop()
	s.work.Wait()
	s.unschedule(shareEnded)

	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	for _, a := range s.attached {
		if a != nil {
			s.card.remove(a)
			a.demand.close()
		}
	}
	delete(s.card.shares, s.key)
	s.grant.close()
	s.ledger.close()
	if err := s.roster.close(shareEnded); err != nil {
		klog.FromContext(s.ctx).Error(err, "A roster stays behind", "share", s.key)
	}
}

// haveLedger makes the ledger where there is none. The caller has card.mu.
func (s *served) haveLedger() error {
	if s.ledger != nil {
		return nil
	}
	ledger, err := newLedger()
	if err != nil {
		return err
	}
	s.ledger = ledger
	s.roster.setLedger(ledger.id)
	s.keepUnknown()
	s.writeKept()
	s.countSlots()
	return nil
}

// attach gives a process the lowest free slot, or tells that there is none. The
// caller has card.mu.
func (s *served) attach(p process, nsPID int32) (*attachment, bool) {
	slot := s.freeSlot()
	if slot >= wire.MaxSlots {
		return nil, false
	}
	a := &attachment{share: s, slot: slot, nonce: newNonce(), process: p}
	s.seat(a, nsPID)
	return a, true
}

// put gives an attachment its slot, or takes it from one that had it. The caller
// has card.mu.
func (s *served) put(slot uint32, a *attachment) {
	for int(slot) >= len(s.attached) {
		s.attached = append(s.attached, nil)
	}
	s.attached[slot] = a
	for len(s.attached) > 0 && s.attached[len(s.attached)-1] == nil {
		s.attached = s.attached[:len(s.attached)-1]
	}
}

// seat makes an attachment known to everybody, with an empty slot. The caller
// has card.mu.
func (s *served) seat(a *attachment, nsPID int32) {
	s.put(a.slot, a)
	w := a.words()
	w.Clear()
	w.HostPID.Store(int32(a.pid)) //nolint:gosec // PIDs are below 2^22
	w.NSPID.Store(nsPID)
	w.Attached.Store(a.nonce)
	s.roster.enter(a.slot, a.process, a.nonce)
	s.card.add(a)
	s.countSlots()
	s.follow(a)
}

// follow waits for the end of the process.
func (s *served) follow(a *attachment) {
	s.work.Go(func() {
		forget := s.arbiter.deaths.await(a.process, func() { s.leave(a) }) // at once: nobody may wait for its lease
		defer forget()
		if a.awaitEnd() == nil {
			s.leave(a) // at least before others' memory is measured, which takes a while
			s.card.reap(a)
		}
	})
}

// free gives the slot up of a process that is no more. The caller has card.mu.
func (s *served) free(a *attachment) { s.freeKeeping(a, wire.NoLimit) }

// freeKeeping is free where it is known how much the card holds for nobody, at
// most, since the process has ended; false where the slot was given up already.
func (s *served) freeKeeping(a *attachment, most uint64) bool {
	if a.removed || s.ended {
		return false
	}
	a.removed = true
	s.put(a.slot, nil)
	s.card.remove(a)
	if s.ledger != nil {
		s.vacate(a.slot, most)
	} else {
		s.departed = append(s.departed, a.slot) // what it has left is in a ledger that is not here yet
	}
	s.countSlots()
	if a.conn != nil {
		a.conn.close()
	}
	if a.missing {
		a.missing = false
		s.returned()
	}
	s.counts.reaped++
	_ = a.pidfd.Close()
	s.part(a)
	return true
}

// countSlots tells everybody how many slots there are to look at. The number
// grows before a slot is handed out, and shrinks when the last ones are free:
// whoever looks at fewer slots than there are when he has looked, had made his
// own wish known before the owner of the new slot looked for it. The ledger has
// the number too, for those who still have the grant of an earlier arbiter. The
// caller has card.mu.
func (s *served) countSlots() {
	used := s.slots()
	if s.ledger != nil {
		s.ledger.words.SlotsUsed.Store(used)
	}
	s.grant.words.SlotsUsed.Store(used)
}

func newNonce() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if nonce := binary.NativeEndian.Uint64(b[:]); nonce != 0 {
			return nonce
		}
	}
}

// openSocket opens the socket where there is none, or where somebody removed it.
// It owns dir.
func (s *served) openSocket(ctx context.Context, dir *os.File) error {
	if s.socket != nil && s.socket.isIn(dir) {
		return dir.Close()
	}
	s.endSocket(true)
	opened, err := listen(ctx, dir)
	if err != nil {
		return err
	}
	if !isThere(dir) { // the share has ended meanwhile: nothing may be made there
		return opened.close(true)
	}
	s.socket = opened
	s.work.Go(func() { s.accept(opened.listener) })
	klog.FromContext(ctx).Info("Serving a share", "share", s.key, "card", s.card.id)
	return nil
}

// endSocket stops taking connections.
func (s *served) endSocket(remove bool) {
	if s.socket == nil {
		return
	}
	if err := s.socket.close(remove); err != nil {
		klog.FromContext(s.ctx).Error(err, "A socket stays behind", "share", s.key)
	}
	s.socket = nil
}

// isThere tells whether the share's directory has a share.json.
func isThere(dir *os.File) bool {
	_, err := os.Stat(procFD(dir, cdi.ShareFileName))
	return err == nil
}
