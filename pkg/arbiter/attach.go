// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// welcomeProcess gives a process its pages, or back what it had.
func (c *connection) welcomeProcess(hello wire.Hello, fd int) *refusal {
	s := c.share
	p, err := peerOf(c.conn)
	if err != nil {
		return refuse(wire.EInvalid, "%v", err)
	}
	if hello.Role == wire.RoleProcess && !s.awaitSettled() {
		_ = p.pidfd.Close()
		return later
	}
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	a, status, refused := s.seatFor(p, hello, fd)
	if a == nil || a.pidfd != p.pidfd {
		_ = p.pidfd.Close()
	}
	if refused != nil {
		return refused
	}
	if old := a.conn; old != nil {
		old.attachment = nil
		old.close()
	}
	a.conn, c.attachment = c, a
	if refused := c.sendPages(a, status); refused != nil {
		// One that came back still has its old pages, and tries again.
		if a.conn, c.attachment = nil, nil; a.pidfd == p.pidfd {
			s.free(a)
		}
		return refused
	}
	s.join(a)
	klog.FromContext(s.ctx).V(4).Info("A process is attached", "share", s.key, "pid", a.pid, "slot", a.slot, "status", status)
	return nil
}

// sendPages gives the process the pages of its attachment. The one in which it says
// what it wants stays the same for as long as this arbiter serves it. The caller has
// card.mu.
func (c *connection) sendPages(a *attachment, status wire.Status) *refusal {
	if a.demand == nil {
		demand, err := newDemand()
		if err != nil {
			return refuse(wire.EFull, "%v", err)
		}
		a.demand = demand
	}
	if !c.send(wire.Encode(welcomeOf(status, a)), a.share.grant.fd, a.share.ledger.fd, a.demand.fd) {
		return refuse(wire.EInvalid, "the client does not read")
	}
	return nil
}

// awaitSettled waits until it is known what the processes of an earlier arbiter
// hold.
func (s *served) awaitSettled() bool {
	select {
	case <-s.settled: // nearly always
		return true
	default:
	}
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	select {
	case <-s.settled:
		return true
	case <-s.ctx.Done():
	case <-limit.C:
	}
	return false
}

// seatFor finds the slot of a process: its own where it comes back, else a free
// one. The caller has card.mu.
func (s *served) seatFor(p process, hello wire.Hello, fd int) (*attachment, wire.Status, *refusal) {
	if s.ended {
		return nil, 0, refuse(wire.EEnded, "the share has ended")
	}
	if hello.Role == wire.RoleAgain {
		if a, ok := s.comeBack(p, hello); ok {
			return s.resume(a, p, fd)
		}
	}
	switch attachments := s.attachmentsOf(p); {
	case s.withheld:
		return nil, 0, refuse(wire.EDenied, "the watchdog withholds the share: its processes held more memory than its limit")
	case attachments >= maxAttachments:
		return nil, 0, refuse(wire.EFull, "the process is attached %d times already", attachments)
	}
	if err := s.haveLedger(); err != nil {
		return nil, 0, refuse(wire.EFull, "%v", err)
	}
	s.mend()
	a, ok := s.attach(p, hello.NSPID)
	if !ok {
		return nil, 0, refuse(wire.EFull, "the share has %d processes, which is the most", wire.MaxSlots)
	}
	if hello.Role == wire.RoleAgain {
		return a, wire.Moved, nil
	}
	return a, wire.OK, nil
}

// resume goes on with an attachment that the process has: in the same ledger,
// or in one that has to be another. The caller has card.mu.
func (s *served) resume(a *attachment, p process, fd int) (*attachment, wire.Status, *refusal) {
	if s.ledger == nil && fd >= 0 {
		if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			if err := s.adopt(own); err != nil {
				klog.FromContext(s.ctx).Error(err, "A process came back with a ledger that cannot be used", "share", s.key, "pid", p.pid)
				_ = unix.Close(own)
			}
		}
	}
	status := wire.OK
	switch {
	case s.ledger == nil: // the old one is not known
		if err := s.moveAll(); err != nil {
			return nil, 0, refuse(wire.EFull, "%v", err)
		}
		status = wire.Moved
	case a.foreign || !s.ours(fd, a):
		status = wire.Moved
	}
	a.foreign = false
	// Whoever shares the ledger may have written there, and the client compares.
	a.words().Attached.Store(a.nonce)
	a.words().HostPID.Store(int32(a.pid)) //nolint:gosec // PIDs are below 2^22
	if a.missing {
		a.missing = false
		s.returned()
	}
	return a, status, nil
}

// ours tells whether the process goes on with our ledger: it sends it along,
// or has lost the descriptor of the one that it got from us.
func (s *served) ours(fd int, a *attachment) bool {
	if fd < 0 {
		return !a.missing
	}
	id, err := idOf(fd)
	return err == nil && id == s.ledger.id
}

// attachmentsOf counts what the program has. Those of the program that the
// process executed before are freed, of which the end of their connections may
// tell a moment later. The caller has card.mu.
func (s *served) attachmentsOf(p process) int {
	count := 0
	for _, a := range slices.Clone(s.card.byPID[p.pid]) {
		switch {
		case a.share != s:
		case !a.same(p) || a.image != p.image:
			s.free(a)
		default:
			count++
		}
	}
	return count
}
