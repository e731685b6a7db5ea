// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// Ledger is a share's ledger, seen as an observer does.
type Ledger struct {
	share  Share
	socket int
	pages  [2][]byte

	grant  *wire.Grant
	ledger *wire.Ledger
}

// OpenLedger gets the pages of a share from the arbiter that serves it now.
func OpenLedger(s Share) (*Ledger, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	l := &Ledger{share: s, socket: fd}
	if err := l.ask(); err != nil {
		return nil, errors.Join(fmt.Errorf("look at the ledger of %s: %w", s.Key, err), l.Close())
	}
	return l, nil
}

func (l *Ledger) ask() error {
	// A path through the descriptor is short enough for a socket's address.
	dir, err := os.Open(l.share.Dir)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // read only
	if err := unix.SetsockoptTimeval(l.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	address := &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), wire.SocketName)}
	if err := unix.Connect(l.socket, address); err != nil {
		return os.NewSyscallError("connect", err)
	}
	hello := wire.Hello{Magic: wire.MessageMagic, Version: wire.ContractVersion, Role: wire.RoleObserver, NSPID: int32(os.Getpid())}
	if _, err := unix.Write(l.socket, wire.Encode(hello)); err != nil {
		return os.NewSyscallError("write", err)
	}
	return l.receive()
}

func (l *Ledger) receive() error {
	message, control := make([]byte, wire.WelcomeSize+1), make([]byte, unix.CmsgSpace(4*4))
	n, controls, _, _, err := unix.Recvmsg(l.socket, message, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("recvmsg", err)
	}
	welcome, err := wire.Decode[wire.Welcome](message[:n])
	if err != nil {
		return err
	}
	parsed, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil {
		return err
	}
	var fds []int
	for _, c := range parsed {
		got, err := unix.ParseUnixRights(&c)
		if err != nil {
			return err
		}
		fds = append(fds, got...)
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd) //nolint:errcheck // it is mapped
		}
	}()
	if welcome.Status != wire.OK || len(fds) != 2 {
		return fmt.Errorf("the arbiter answers %s with %d pages: %s", welcome.Status, len(fds), wire.Text(welcome.Reason[:]))
	}
	for i, size := range []int{wire.GrantSize, wire.LedgerSize} {
		if l.pages[i], err = unix.Mmap(fds[i], 0, size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return os.NewSyscallError("mmap", err)
		}
	}
	l.grant, err = wire.In[wire.Grant](l.pages[0])
	if err != nil {
		return err
	}
	l.ledger, err = wire.In[wire.Ledger](l.pages[1])
	return err
}

// Close ends the look.
func (l *Ledger) Close() error {
	errs := []error{unix.Close(l.socket)}
	for _, page := range l.pages {
		if page != nil {
			errs = append(errs, unix.Munmap(page))
		}
	}
	return errors.Join(errs...)
}

// Charge is what the share's processes hold together, by the ledger.
func (l *Ledger) Charge() uint64 { return l.ledger.Charge(l.used()) }

func (l *Ledger) used() uint32 { return max(l.grant.SlotsUsed.Load(), l.ledger.SlotsUsed.Load()) }

// Limit that the share has at present.
func (l *Ledger) Limit() uint64 { return l.grant.MemoryLimit.Load() }

// Quiet tells whether nobody is between asking and having.
func (l *Ledger) Quiet() bool {
	for i := range l.used() {
		s := &l.ledger.Slot[i]
		if s.Pending.Load() != 0 || s.Reserve.Load() != 0 || s.Inflight.Load() != 0 {
			return false
		}
	}
	return true
}

// Attached is how many processes have a slot.
func (l *Ledger) Attached() int {
	n := 0
	for i := range l.used() {
		if l.ledger.Slot[i].Attached.Load() != 0 {
			n++
		}
	}
	return n
}

// String lists the slots in use.
func (l *Ledger) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "ledger of %s, limit %d:", l.share.Key, l.Limit())
	for i := range l.used() {
		s := &l.ledger.Slot[i]
		if s.Attached.Load() == 0 {
			continue
		}
		fmt.Fprintf(&text, " slot %d (PID %d) pending %d committed %d reserve %d implicit %d in flight %d;", i, s.HostPID.Load(),
			s.Pending.Load(), s.Committed.Load(), s.Reserve.Load(), s.Implicit.Load(), s.Inflight.Load())
	}
	return text.String()
}
