// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// returnLimit is how long new processes wait for those that an earlier arbiter
// knew: without them it is not known what the share holds, and they look at no
// more slots than there were when they last heard of it.
const returnLimit = 2 * time.Second

// remember takes those that an earlier arbiter served and that still live for
// missing. The caller has card.mu.
func (s *served) remember() {
	for _, n := range s.roster.all() {
		if n.pid == 0 {
			s.kept = kept{slot: n.slot, nonce: n.nonce, bytes: n.kept}
			continue
		}
		p, err := findProcess(n.pid)
		if err == nil && (!n.same(p) || n.look(s.roster.ledger()) == replaced) {
			_ = p.pidfd.Close()
			err = errPeerGone
		}
		if err != nil {
			s.departed = append(s.departed, n.slot)
			continue
		}
		a := &attachment{share: s, slot: n.slot, nonce: n.nonce, process: p, missing: true, measured: true}
		s.put(n.slot, a)
		s.missing++
		s.card.add(a)
		s.follow(a)
	}
	s.countSlots()
	if s.missing == 0 && len(s.departed) == 0 {
		close(s.settled)
		return
	}
	if s.missing == 0 {
		s.keepUnknown()
		s.work.Go(s.settleKept)
		return
	}
	err := s.recover()
	if err == nil {
		// Nothing is unknown, and those who still have their old grant see in the
		// ledger who comes.
		close(s.settled)
		return
	}
	klog.FromContext(s.ctx).Info("Waiting for the processes of an earlier arbiter, which have the ledger", "share", s.key, "processes", s.missing, "reason", err.Error())
	s.work.Go(s.awaitReturn)
}

// recover takes the ledger over from a process that has it, which may be stopped
// or busy. It needs the right to look into processes (CAP_SYS_PTRACE). The caller
// has card.mu.
func (s *served) recover() error {
	failure := errNotOurs
	for _, a := range s.attached {
		if a == nil {
			continue
		}
		fd, err := s.arbiter.config.findLedger(a.pid, s.roster.ledger())
		if err == nil {
			if err = s.adopt(fd); err == nil {
				return nil
			}
			_ = unix.Close(fd)
		}
		failure = err
	}
	return failure
}

// ledgerOf opens a ledger that a process has mapped, or open.
func ledgerOf(pid int, ledger fileID) (fd int, err error) {
	mapping, err := mappingOf(pid, ledger)
	if err != nil {
		return -1, err
	}
	if mapping != "" {
		// This needs CAP_CHECKPOINT_RESTORE as well.
		if fd, err := unix.Open(procPath(pid, "map_files/"+mapping), unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			return fd, nil
		}
	}
	files, err := os.ReadDir(procPath(pid, "fd"))
	if err != nil {
		return -1, fmt.Errorf("find ledger of process %d: %w", pid, err)
	}
	for _, file := range files {
		path := procPath(pid, "fd/"+file.Name())
		// The link's text is the kernel's. Files of other kinds are not touched:
		// who asks a file system of the process's own may wait for ever.
		if text, err := os.Readlink(path); err != nil || !strings.HasPrefix(text, "/memfd:"+ledgerName) {
			continue
		}
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if id, err := idOf(fd); err == nil && id == ledger {
			return fd, nil
		}
		_ = unix.Close(fd)
	}
	return -1, fmt.Errorf("find ledger of process %d: %w", pid, errNotOurs)
}

// returned notes that one less is missing. The caller has card.mu.
func (s *served) returned() {
	if s.missing--; s.missing == 0 {
		select {
		case <-s.settled:
		default:
			close(s.settled)
		}
	}
}

// awaitReturn ends the waiting: who has not come back by then keeps its slot,
// with what the card holds for it where its ledger is not known.
func (s *served) awaitReturn() {
	limit := time.NewTimer(returnLimit)
	defer limit.Stop()
	select {
	case <-s.ctx.Done():
		return
	case <-s.settled:
		return
	case <-limit.C:
	}
	ctx, cancel := context.WithTimeout(s.ctx, measureLimit)
	defer cancel()
	r, err := s.card.meter.read(ctx)
	if err != nil {
		klog.FromContext(s.ctx).Error(err, "Cannot measure processes that did not come back: nothing more is allocated until they have", "share", s.key)
	}
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	if s.ended || s.missing == 0 {
		return
	}
	klog.FromContext(s.ctx).Info("Processes of an earlier arbiter did not come back", "share", s.key, "processes", s.missing)
	if s.ledger == nil {
		if err := s.moveAll(); err != nil {
			klog.FromContext(s.ctx).Error(err, "New processes are refused", "share", s.key)
			return
		}
	}
	for _, a := range s.attached {
		switch {
		case a == nil || !a.missing || !a.foreign:
		case err != nil:
			a.setImplicit(limitOf(s.document))
		default:
			a.setImplicit(r.used[a.pid])
		}
	}
	select {
	case <-s.settled:
	default:
		close(s.settled)
	}
}

// moveAll makes a new ledger in which the missing have their slots. What they
// hold is not known until they come back and say so, or it is measured. The
// caller has card.mu.
func (s *served) moveAll() error {
	if err := s.haveLedger(); err != nil {
		return err
	}
	for _, a := range s.attached {
		if a == nil {
			continue
		}
		a.foreign = true
		w := a.words()
		w.Clear()
		w.Exported.Store(wire.NoLimit)
		w.HostPID.Store(int32(a.pid)) //nolint:gosec // PIDs are below 2^22
		w.Attached.Store(a.nonce)
	}
	return nil
}

// adopt takes the ledger of an earlier arbiter over, whose descriptor it owns
// then. Slots without a living process are cleared, but for what is kept. The caller
// has card.mu.
func (s *served) adopt(fd int) error {
	ledger, err := adoptLedger(fd, s.roster.ledger())
	if err != nil {
		return err
	}
	s.ledger = ledger
	for _, slot := range s.departed {
		s.vacate(slot, wire.NoLimit)
	}
	s.departed = nil
	for slot := range ledger.words.Slot {
		if (slot >= len(s.attached) || s.attached[slot] == nil) && !s.kept.has(slot) {
			ledger.words.Slot[slot].Clear()
		}
	}
	s.writeKept()
	s.countSlots()
	return nil
}

// comeBack finds the attachment that a process names, if it is its own. The
// caller has card.mu.
func (s *served) comeBack(p process, hello wire.Hello) (*attachment, bool) {
	if int(hello.Slot) >= len(s.attached) {
		return nil, false
	}
	a := s.attached[hello.Slot]
	return a, a != nil && hello.Nonce != 0 && a.nonce == hello.Nonce && a.same(p)
}
