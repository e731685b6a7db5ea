// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long anything may take that is awaited. It is generous, because
// machines are slow and sanitizers slower; nothing is measured by it.
const Patience = 60 * time.Second

// errNever ends a wait at once.
var errNever = errors.New("it will never be")

// Until polls until it is so, or says what is not.
func Until(what string, so func() (bool, error)) error {
	deadline := time.Now().Add(Patience)
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for {
		ok, err := so()
		if ok && err == nil {
			return nil
		}
		if errors.Is(err, errNever) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("wait for %s: not within %s", what, Patience), err)
		}
		<-pause.C
	}
}

// Arbiter is the arbiter's process.
type Arbiter struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  string
}

// built is the arbiter's program, made once.
var built struct {
	sync.Once
	path string
	err  error
}

// ArbiterProgram is the file of tranche-arbiter, which is built first.
func ArbiterProgram() (string, error) {
	built.Do(func() {
		root, err := repository()
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(root, "build", "bin", "rig", "tranche-arbiter")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-o", built.path, "./cmd/tranche-arbiter")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build tranche-arbiter: %w: %s", err, out)
		}
	})
	return built.path, built.err
}

// StartArbiter starts an arbiter. Of several the last one is what the other
// functions mean.
func (r *Rig) StartArbiter() (*Arbiter, error) {
	program, err := ArbiterProgram()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &Arbiter{done: make(chan struct{}), log: filepath.Join(r.Dir, "arbiter.log")}
	log, err := os.OpenFile(a.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own
	a.cmd = exec.Command(program, append([]string{
		"--kubernetes=false", "--state-dir", r.stateDir(), "--run-dir", filepath.Join(r.Dir, "run"), "--metrics-address=", "--v=2",
	}, r.ArbiterFlags...)...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		a.err = a.cmd.Wait()
		close(a.done)
	}()
	r.arbiter = a
	return a, nil
}

// Signal sends a signal and, where it ends or stops the arbiter, waits for that: one that
// is busy may answer a while longer. One that is stopped cannot be stopped once more.
func (a *Arbiter) Signal(s syscall.Signal) error {
	if err := a.cmd.Process.Signal(s); err != nil {
		return err
	}
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		<-a.done
	}
	for s == syscall.SIGSTOP {
		if err := unix.Waitid(unix.P_PID, a.PID(), nil, unix.WSTOPPED, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

// Running tells whether it still runs.
func (a *Arbiter) Running() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// PID of the arbiter.
func (a *Arbiter) PID() int { return a.cmd.Process.Pid }

// Log is what the arbiters of the rig have said so far.
func (r *Rig) Log() string {
	content, err := os.ReadFile(filepath.Join(r.Dir, "arbiter.log"))
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// end kills the arbiter. It is an error where that had ended by itself in a
// crash.
func (a *Arbiter) end() error {
	if !a.Running() {
		if state := a.cmd.ProcessState; state.ExitCode() > 0 {
			return fmt.Errorf("arbiter ended by itself: %w", a.err)
		}
		return nil
	}
	a.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have been stopped
	return a.Signal(syscall.SIGKILL)
}

// Served waits until the arbiter answers for the shares.
func (r *Rig) Served(shares ...Share) error {
	for _, s := range shares {
		if err := Until("the arbiter to serve "+string(s.Key), func() (bool, error) {
			if !r.Arbiter().Running() {
				return false, fmt.Errorf("%w: the arbiter has ended", errNever)
			}
			book, err := OpenLedger(context.Background(), s)
			if err != nil {
				return false, err
			}
			return true, book.Close()
		}); err != nil {
			return err
		}
	}
	return nil
}

// Arbiter is the one that was started last.
func (r *Rig) Arbiter() *Arbiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arbiter
}
