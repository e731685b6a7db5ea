// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/wire"
)

const (
	// helloLimit is how long a client may take to say what it wants.
	helloLimit = 2 * time.Second
	// settleLimit is how long a new process is kept waiting for others' return.
	settleLimit = 2 * returnLimit
	// acceptPause follows an accept that failed, as where descriptors ran out.
	acceptPause = 50 * time.Millisecond
	// maxConnections of a share at once: all of its slots, as many observers,
	// and some who have not said yet what they are.
	maxConnections = 2*wire.MaxSlots + 128
	// maxAttachments of one process to one share: one for each copy of the
	// runtime that it has loaded.
	maxAttachments = 16
	// messageRoom in bytes is more than any message has, so that longer ones
	// are noticed.
	messageRoom = 64
)

// connection is one client. Its goroutine is the only one that reads from it.
type connection struct {
	share *served
	conn  *net.UnixConn
	// attachment is nil for who holds nothing; guarded by the card's mu.
	attachment *attachment
}

// close ends the connection, from any goroutine.
func (c *connection) close() { _ = c.conn.Close() }

// accept takes connections until the socket is closed.
func (s *served) accept(listener *net.UnixListener) {
	for told := false; ; {
		s.connects.wait(s.ctx)
		conn, err := listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !told {
				klog.FromContext(s.ctx).Error(err, "Cannot accept connections", "share", s.key)
			}
			told = true
			pause(s.ctx, acceptPause)
			continue
		}
		told = false
		c := &connection{share: s, conn: conn}
		if !s.admit(c) {
			c.close() // the client tries again
			continue
		}
		s.work.Go(c.run)
	}
}

// admit notes the connection, if there is room for it.
func (s *served) admit(c *connection) bool {
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	if s.ended || len(s.connections) >= maxConnections || !s.arbiter.room.take(len(s.connections)) {
		return false
	}
	s.connections[c] = struct{}{}
	return true
}

// run serves the connection until it ends.
func (c *connection) run() {
	defer c.leave()
	_ = c.conn.SetReadDeadline(time.Now().Add(helloLimit)) // fails on a closed connection only
	hello, fd, refusal := c.hello()
	if refusal == nil {
		refusal = c.welcome(hello, fd)
	} else if fd >= 0 {
		_ = unix.Close(fd)
	}
	if refusal != nil {
		c.refuse(refusal)
		return
	}
	_ = c.conn.SetReadDeadline(time.Time{}) // fails on a closed connection only
	for {
		c.share.requests.wait(c.share.ctx)
		var message [messageRoom]byte
		n, _, flags, _, err := c.conn.ReadMsgUnix(message[:], nil)
		if err != nil || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || !c.answer(message[:n]) {
			return
		}
	}
}

// leave ends the connection. A process that goes on living is looked at.
func (c *connection) leave() {
	s := c.share
	c.close()
	s.card.mu.Lock()
	delete(s.connections, c)
	s.arbiter.room.give()
	a := c.attachment
	if a == nil || a.removed || a.conn != c || s.ended {
		s.card.mu.Unlock()
		return
	}
	a.conn = nil
	ledger := s.ledger.id
	s.card.mu.Unlock()
	if a.look(ledger) == replaced { // the facts of an attachment do not change
		s.abandon(a, false)
	}
}

// abandon frees the slot of a program that is no more, in a process that lives.
// That it has a connection is a reason to keep it, unless somebody else has the
// process's.
func (s *served) abandon(a *attachment, connected bool) {
	kept := s.card.raiseOthers(s.ctx, map[int]bool{a.pid: true}, reapLimit)
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	if (a.conn == nil || connected) && s.freeKeeping(a, kept) {
		klog.FromContext(s.ctx).V(4).Info("A process executes another program", "share", s.key, "pid", a.pid, "slot", a.slot)
	}
}

// refusal is why a client gets nothing.
type refusal struct {
	status wire.Status
	reason string
}

// later ends a connection without an answer, upon which the client tries again.
var later = &refusal{}

func refuse(status wire.Status, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// hello reads the first message, and a descriptor that came with it, or -1.
func (c *connection) hello() (hello wire.Hello, fd int, _ *refusal) {
	var message [messageRoom]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(message[:], oob)
	// First of all: an empty message reads as the end, and can bring some too.
	fd, extra := descriptors(oob[:oobn])
	if err != nil {
		return hello, fd, refuse(wire.EInvalid, "no message came: %v", err)
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || extra {
		return hello, fd, refuse(wire.EInvalid, "the message is too long, or has too many descriptors")
	}
	if version, ok := wire.HelloVersion(message[:n]); ok && version != wire.ContractVersion {
		return hello, fd, refuse(wire.EVersion, "this node's arbiter speaks version %d, not %d", wire.ContractVersion, version)
	}
	if hello, err = wire.Decode[wire.Hello](message[:n]); err != nil {
		return hello, fd, refuse(wire.EInvalid, "%v", err)
	}
	return hello, fd, nil
}

// descriptors gives the first one that came, or -1, and closes all others.
func descriptors(oob []byte) (fd int, extra bool) {
	fd = -1
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fd, len(oob) > 0
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			extra = true
			continue
		}
		for _, other := range fds {
			if fd < 0 {
				fd = other
				continue
			}
			extra = true
			_ = unix.Close(other)
		}
	}
	return fd, extra
}

// welcome gives the client what it wants. It owns fd.
func (c *connection) welcome(hello wire.Hello, fd int) *refusal {
	if fd >= 0 {
		defer func() { _ = unix.Close(fd) }()
	}
	switch hello.Role {
	case wire.RoleProbe:
		if !c.send(wire.Encode(welcomeOf(wire.OK, nil))) {
			return refuse(wire.EInvalid, "the client does not read")
		}
		return nil
	case wire.RoleObserver:
		return c.welcomeObserver()
	case wire.RoleProcess, wire.RoleAgain:
		return c.welcomeProcess(hello, fd)
	}
	return refuse(wire.EInvalid, "%s is not known", hello.Role)
}

func (c *connection) welcomeObserver() *refusal {
	s := c.share
	s.card.mu.Lock()
	defer s.card.mu.Unlock()
	if s.ended {
		return refuse(wire.EEnded, "the share has ended")
	}
	if s.ledger == nil && s.missing > 0 {
		return later
	}
	if err := s.haveLedger(); err != nil {
		return refuse(wire.EFull, "%v", err)
	}
	if !c.send(wire.Encode(welcomeOf(wire.OK, nil)), s.grant.fd, s.ledger.fd) {
		return refuse(wire.EInvalid, "the client does not read")
	}
	return nil
}

// refuse tells the client why, if it is still there.
func (c *connection) refuse(r *refusal) {
	s := c.share
	s.card.mu.Lock()
	s.counts.refused++
	s.card.mu.Unlock()
	klog.FromContext(s.ctx).V(2).Info("Refused a client", "share", s.key, "status", r.status, "reason", r.reason)
	if r == later {
		return
	}
	w := welcomeOf(r.status, nil)
	w.Reason = wire.Reason(r.reason)
	c.send(wire.Encode(w))
}

func welcomeOf(status wire.Status, a *attachment) wire.Welcome {
	w := wire.Welcome{Magic: wire.MessageMagic, Version: wire.ContractVersion, Status: status}
	if a != nil {
		w.Slot, w.Nonce, w.HostPID = a.slot, a.nonce, int32(a.pid) //nolint:gosec // PIDs are below 2^22
	}
	return w
}

// send gives the client a message, with descriptors, without waiting: false where
// the client has gone or does not read what it asked for.
func (c *connection) send(message []byte, fds ...int) bool {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return false
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	var failure error
	err = raw.Control(func(socket uintptr) {
		failure = unix.Sendmsg(int(socket), message, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return err == nil && failure == nil
}

// answer serves a request; false ends the connection.
func (c *connection) answer(message []byte) bool {
	s := c.share
	request, err := wire.Decode[wire.Request](message)
	s.card.mu.Lock()
	a := c.attachment
	s.card.mu.Unlock()
	if err != nil || a == nil {
		return false
	}
	reply := wire.Reply{Magic: wire.MessageMagic, Status: wire.EInvalid, ID: request.ID}
	switch request.Op {
	case wire.OpMeasureAll:
		s.card.reapEnded()
		s.card.raiseOthers(s.ctx, map[int]bool{a.pid: true}, measureLimit)
		reply.Used, reply.Implicit, reply.Status = s.measure(c, a, request.Settle, true)
		s.card.lookAtKept(s.ctx)
	case wire.OpMeasure:
		reply.Used, reply.Implicit, reply.Status = s.measure(c, a, request.Settle, false)
	}
	return c.send(wire.Encode(reply))
}
