// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one that lived when it was looked at. The pidfd stands for it and
// for no later one of the same number.
type process struct {
	pid int
	// started is in clock ticks after boot: with pid, an identity that can be
	// written down.
	started uint64
	// image changes when the process executes another program.
	image image
	pidfd *os.File
}

// image tells one address space from the next that a process has.
type image struct{ code, stack uint64 }

// peerOf is who opened the connection.
func peerOf(conn *net.UnixConn) (process, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return process{}, err
	}
	var p process
	var failure error
	err = raw.Control(func(fd uintptr) { p, failure = peerOfSocket(int(fd)) })
	return p, errors.Join(err, failure)
}

func peerOfSocket(socket int) (process, error) {
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return process{}, fmt.Errorf("look who connected: %w", err)
	}
	if peer.Pid <= 0 {
		return process{}, errPeerHidden
	}
	pidfd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case errors.Is(err, unix.ENOPROTOOPT): // before Linux 6.5
		return findProcess(int(peer.Pid))
	case err != nil: // it has ended, and was waited for
		return process{}, errPeerGone
	}
	unix.CloseOnExec(pidfd)
	return newProcess(int(peer.Pid), pidfd)
}

// findProcess looks up who has the number at present.
func findProcess(pid int) (process, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: a thread has the number
		return process{}, errPeerGone
	}
	if err != nil {
		return process{}, fmt.Errorf("open process %d: %w", pid, err)
	}
	return newProcess(pid, pidfd)
}

// newProcess owns pidfd. Facts are read before it is seen that the process still
// lives: they cannot be those of a later one.
func newProcess(pid, pidfd int) (process, error) {
	if err := unix.SetNonblock(pidfd, true); err != nil { // so that the runtime polls it
		return process{}, errors.Join(fmt.Errorf("watch process %d: %w", pid, err), unix.Close(pidfd))
	}
	p := process{pid: pid, pidfd: os.NewFile(uintptr(pidfd), "pidfd:"+strconv.Itoa(pid))}
	facts, err := statOf(pid)
	p.started, p.image = facts.started, facts.image
	if err != nil || hasEnded(pidfd) {
		return process{}, errors.Join(errPeerGone, p.pidfd.Close())
	}
	return p, nil
}

func hasEnded(pidfd int) bool {
	polled := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for {
		n, err := unix.Poll(polled, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 && err == nil
		}
	}
}

// awaitEnd returns nil once the process has ended, and an error once pidfd was
// closed.
func (p process) awaitEnd() error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool { return hasEnded(int(fd)) })
}

// ended tells whether the process has ended, also where its end was seen before.
func (p process) ended() bool {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return true
	}
	over := true
	err = raw.Control(func(fd uintptr) { over = hasEnded(int(fd)) })
	return over || err != nil
}

// kill ends the process and no other that has got its number since.
func (p process) kill() error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) { failure = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	return errors.Join(err, failure)
}

// same tells whether both are one process.
func (p process) same(other process) bool { return p.pid == other.pid && p.started == other.started }

// presence is what has become of the program that attached.
type presence int

const (
	// present: it runs, and has the ledger mapped.
	present presence = iota
	// ending: so does the process; its pidfd will tell when.
	ending
	// replaced: the process executes another program, or has let go of the
	// ledger.
	replaced
)

// look finds out whether the process still has a ledger. When it cannot be
// known, the process is taken for present: that charges too much, not too little.
func (p process) look(ledger fileID) presence {
	facts, err := statOf(p.pid)
	if err != nil || facts.ending || facts.started != p.started {
		return ending
	}
	if facts.image != p.image {
		return replaced
	}
	if mapping, err := mappingOf(p.pid, ledger); err != nil || mapping != "" {
		return present
	}
	// Without any mapping it is about to end, or its first thread has ended.
	if facts, err := statOf(p.pid); err != nil || facts.ending {
		return ending
	}
	return replaced
}

// stat is what /proc/PID/stat says; proc(5) has the fields.
type stat struct {
	started uint64
	image   image
	ending  bool
}

// Fields of /proc/PID/stat that follow the name, which may contain anything: the
// first one is the state.
const (
	statState   = 0
	statFlags   = 6
	statStarted = 19
	statCode    = 23
	statStack   = 25
	statFields  = 26

	flagExiting = 0x4 // PF_EXITING
)

func statOf(pid int) (stat, error) {
	raw, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return stat{}, err
	}
	end := bytes.LastIndexByte(raw, ')')
	fields := strings.Fields(string(raw[end+1:]))
	if end < 0 || len(fields) < statFields {
		return stat{}, fmt.Errorf("read %s: it has %d fields", procPath(pid, "stat"), len(fields))
	}
	number := func(field int) uint64 {
		n, _ := strconv.ParseUint(fields[field], 10, 64) // the kernel's
		return n
	}
	state := fields[statState]
	return stat{
		started: number(statStarted),
		image:   image{code: number(statCode), stack: number(statStack)},
		ending:  state == "Z" || state == "X" || number(statFlags)&flagExiting != 0,
	}, nil
}

// mappingOf gives the addresses at which the process has a file mapped, as
// /proc/PID/maps writes them, empty where it has not.
func mappingOf(pid int, file fileID) (string, error) {
	raw, err := os.ReadFile(procPath(pid, "maps"))
	if err != nil {
		return "", err
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(file.dev), unix.Minor(file.dev))
	inode := strconv.FormatUint(file.ino, 10)
	for line := range strings.Lines(string(raw)) {
		// "from-to mode offset device inode path"
		if fields := strings.Fields(line); len(fields) >= 5 && fields[3] == device && fields[4] == inode {
			return fields[0], nil
		}
	}
	return "", nil
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }
