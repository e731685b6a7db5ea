// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one run of a component.
type process struct {
	component Component
	command   *exec.Cmd
	stopping  atomic.Bool
	done      chan struct{} // closed once the process has been waited for
	err       error         // how it ended; to be read after done
}

func launch(c Component, deaths chan<- error) (*process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", c.Name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	// Without a context: it outlives the operation that starts it.
	command := exec.Command(c.Path, c.Args...)
	command.Env = append(os.Environ(), c.Env...)
	command.Stdout, command.Stderr = log, log
	// Out of the terminal's group: a Ctrl-C is for the command, the components end when we say so.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &process{component: c, command: command, done: make(chan struct{})}
	go p.wait(deaths)
	return p, nil
}

func (p *process) wait(deaths chan<- error) {
	p.err = p.command.Wait()
	close(p.done)
	if p.stopping.Load() {
		return
	}
	select {
	case deaths <- p.death():
	default: // the first deaths say enough
	}
}

// death tells how the process ended and what it said last.
func (p *process) death() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended unasked: %s; the end of its log:\n%s", p.component.Name, how, Tail(p.component.Log, 15))
}

func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) awaitReady(ctx context.Context) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := p.component.Ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.death()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w); the end of its log:\n%s",
				p.component.Name, context.Cause(ctx), err, Tail(p.component.Log, 15))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *process) stop(ctx context.Context, signal syscall.Signal) error {
	p.stopping.Store(true)
	for _, step := range []syscall.Signal{signal, syscall.SIGKILL} {
		if err := p.command.Process.Signal(step); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal %s: %w", p.component.Name, err)
		}
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop %s: %w", p.component.Name, context.Cause(ctx))
		case <-time.After(p.component.Grace):
		}
	}
	return fmt.Errorf("stop %s: process %d outlives SIGKILL", p.component.Name, p.pid())
}
