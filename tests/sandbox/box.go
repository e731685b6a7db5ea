// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where a box has what it was given.
const (
	// TrancheDir has a directory for each share.
	TrancheDir = "/run/tranche"
	// DriverDir has the real libraries, or the simulated ones.
	DriverDir = TrancheDir + "/driver"
	// CardsDir has a directory for each simulated card.
	CardsDir = TrancheDir + "/cards"
	// LibraryDir is where the loader finds the libraries that stand in front.
	LibraryDir = "/run/library"
	// ProgramDir has the programs that the box was given.
	ProgramDir = "/run/programs"
)

// Config says what a box has. All paths are directories of the machine.
type Config struct {
	// Shares by key.
	Shares map[string]string
	// Cards by UUID, writable.
	Cards map[string]string
	// Driver has the libraries that the runtime stands in front of; empty for none.
	Driver string
	// Library has the libraries that the loader finds by default; empty for none.
	Library string
	// Programs has what is run; anybody can read it there, even where the
	// directory is below one that only root may enter. Empty for none.
	Programs string
	// HostPIDs leaves out the PID namespace.
	HostPIDs bool
}

// Box is a container without an image. Everything may be used concurrently.
type Box struct {
	requests chan func()
	done     chan struct{} // the thread is gone
	closing  chan struct{}
	close    sync.Once
	programs sync.WaitGroup

	namespace string

	anchor *exec.Cmd
	hold   io.Closer // the anchor ends when it is closed
}

// Usable says why this machine cannot have boxes, or nil.
func Usable() error {
	if os.Geteuid() != 0 {
		return ErrRoot
	}
	return nil
}

// New makes a box. The caller closes it.
func New(cfg Config) (*Box, error) {
	if err := Usable(); err != nil {
		return nil, err
	}
	b := &Box{requests: make(chan func()), done: make(chan struct{}), closing: make(chan struct{})}
	go b.serve()
	err := b.Do(func() error {
		if err := furnish(cfg); err != nil {
			return err
		}
		var err error
		if b.namespace, err = os.Readlink("/proc/thread-self/ns/mnt"); err != nil {
			return err
		}
		if cfg.HostPIDs {
			return nil
		}
		return b.takePIDNamespace()
	})
	if err == nil && cfg.Library != "" {
		err = b.coverLoaderCache()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make box: %w", err), b.Close())
	}
	return b, nil
}

// Namespace is what /proc/<pid>/ns/mnt of the machine says of every program in
// the box, and of no other.
func (b *Box) Namespace() string { return b.namespace }

// serve owns the thread of the box. The thread is never given back to the Go
// runtime: it ends with this function, and what it has unshared with it.
func (b *Box) serve() {
	defer close(b.done)
	runtime.LockOSThread()
	for {
		select {
		case do := <-b.requests:
			do()
		case <-b.closing:
			return
		}
	}
}

// Do calls do with the files of the box in place of the machine's. It must not
// start a goroutine: that would not be in the box.
func (b *Box) Do(do func() error) error {
	result := make(chan error, 1)
	select {
	case b.requests <- func() { result <- do() }:
		return <-result
	case <-b.closing:
		return ErrClosed
	}
}

// Program is a program that was started in a box.
type Program struct {
	// PID as the machine counts.
	PID int

	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts a program in the box, as cmd.Start would outside. The program
// ends with the box at the latest. Whoever wants what it writes gives it a pipe
// of its own (os.Pipe), or a writer; those of cmd.StdoutPipe end too early.
func (b *Box) Start(cmd *exec.Cmd) (*Program, error) {
	err := b.Do(func() error {
		if b.anchor == nil {
			// Without a PID namespace the kernel kills it when our thread ends.
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{}
			}
			cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, err
	}
	p := &Program{PID: cmd.Process.Pid, cmd: cmd, done: make(chan struct{})}
	b.programs.Go(func() {
		p.err = cmd.Wait()
		close(p.done)
	})
	return p, nil
}

// Wait waits for the end of the program and returns what cmd.Wait does.
func (p *Program) Wait() error {
	<-p.done
	return p.err
}

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Signal sends a signal, unless the program has ended.
func (p *Program) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Run starts a program in the box and waits for its end.
func (b *Box) Run(cmd *exec.Cmd) error {
	p, err := b.Start(cmd)
	if err != nil {
		return err
	}
	return p.Wait()
}

// takePIDNamespace starts the first process of the box. When it ends, the kernel
// ends all others. It ends when its standard input does: with us at the latest.
// It lets the kernel reap what it inherits.
func (b *Box) takePIDNamespace() error {
	anchor := exec.Command("/bin/sh", "-c", `mount -t proc proc /proc && rm -rf /run/mount && trap "" CHLD && echo ready && exec cat`)
	anchor.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	anchor.Stderr = os.Stderr
	hold, err := anchor.StdinPipe()
	if err != nil {
		return err
	}
	said, err := anchor.StdoutPipe()
	if err != nil {
		return err
	}
	if err := anchor.Start(); err != nil {
		return err
	}
	b.anchor, b.hold = anchor, hold
	if _, err := io.ReadFull(said, make([]byte, len("ready\n"))); err != nil {
		return fmt.Errorf("start the box's first process: %w", err)
	}
	fd, err := unix.PidfdOpen(anchor.Process.Pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	return os.NewSyscallError("setns", unix.Setns(fd, unix.CLONE_NEWPID))
}

// Close ends every program in the box and the box.
func (b *Box) Close() error {
	var err error
	b.close.Do(func() {
		close(b.closing)
		<-b.done
		if b.anchor != nil {
			if err = b.anchor.Process.Kill(); errors.Is(err, os.ErrProcessDone) {
				err = nil
			}
		}
		// The first process of a PID namespace stays until all others are reaped.
		b.programs.Wait()
		if b.anchor != nil {
			b.anchor.Wait() //nolint:errcheck // it was killed
		}
	})
	return err
}
