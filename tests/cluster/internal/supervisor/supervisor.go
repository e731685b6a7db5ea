// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// defaultGrace is for components that do not say how long they may take to end. The
// API server with watches open, and etcd with an API server connected, take it all; a
// test cluster loses nothing by their being killed then.
const defaultGrace = 5 * time.Second

// ErrUnknown says that no component has the name asked for.
var ErrUnknown = errors.New("no such component")

// Component says how one component runs.
type Component struct {
	Name string
	// Path is the program, Args its arguments without the name.
	Path string
	Args []string
	// Env is added to this process's environment.
	Env []string
	// Log is the file that its output is appended to.
	Log string
	// Ready is asked again and again until it returns nil. It must honour the context.
	Ready func(context.Context) error
	// Grace is how long it may take to end after SIGTERM, before it is killed.
	Grace time.Duration
}

// State is what Status tells of a component.
type State struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	// PID is 0 where nothing runs.
	PID int `json:"pid"`
	// Starts counts how often it was started.
	Starts int `json:"starts"`
}

// Supervisor keeps the components.
type Supervisor struct {
	order  []string
	units  map[string]*unit
	deaths chan error
}

// unit is a component with its present process.
type unit struct {
	Component
	operation sync.Mutex // held across a whole start or stop

	mu      sync.Mutex // guards what follows
	process *process
	starts  int
}

// New keeps the given components; nothing is started.
func New(components ...Component) *Supervisor {
	s := &Supervisor{units: map[string]*unit{}, deaths: make(chan error, len(components))}
	for _, c := range components {
		if c.Grace == 0 {
			c.Grace = defaultGrace
		}
		s.order = append(s.order, c.Name)
		s.units[c.Name] = &unit{Component: c}
	}
	return s
}

// Deaths reports components that ended unasked.
func (s *Supervisor) Deaths() <-chan error { return s.deaths }

// Start starts a component, unless it runs, and waits until it is ready.
func (s *Supervisor) Start(ctx context.Context, name string) error {
	return s.operate(name, func(u *unit) error { return s.start(ctx, u) })
}

// Stop ends a component with SIGTERM, and with SIGKILL where that takes too long. It stays away until Start.
func (s *Supervisor) Stop(ctx context.Context, name string) error {
	return s.operate(name, func(u *unit) error { return u.stop(ctx, syscall.SIGTERM) })
}

// Restart stops a component and starts it again.
func (s *Supervisor) Restart(ctx context.Context, name string) error {
	return s.again(ctx, name, syscall.SIGTERM)
}

// Kill ends a component with SIGKILL, as a crash would, and starts it again, as its service manager would.
func (s *Supervisor) Kill(ctx context.Context, name string) error {
	return s.again(ctx, name, syscall.SIGKILL)
}

func (s *Supervisor) again(ctx context.Context, name string, signal syscall.Signal) error {
	return s.operate(name, func(u *unit) error {
		if err := u.stop(ctx, signal); err != nil {
			return err
		}
		return s.start(ctx, u)
	})
}

// Status lists the components in the order they were given.
func (s *Supervisor) Status() []State {
	states := make([]State, 0, len(s.order))
	for _, name := range s.order {
		states = append(states, s.units[name].state())
	}
	return states
}

func (s *Supervisor) operate(name string, do func(*unit) error) error {
	u, ok := s.units[name]
	if !ok {
		return fmt.Errorf("find component %q (there are %v): %w", name, s.order, ErrUnknown)
	}
	u.operation.Lock()
	defer u.operation.Unlock()
	return do(u)
}

func (s *Supervisor) start(ctx context.Context, u *unit) error {
	p := u.current()
	if p == nil || p.ended() {
		var err error
		if p, err = launch(u.Component, s.deaths); err != nil {
			return err
		}
		u.mu.Lock()
		u.process, u.starts = p, u.starts+1
		u.mu.Unlock()
	}
	return p.awaitReady(ctx)
}

func (u *unit) stop(ctx context.Context, signal syscall.Signal) error {
	p := u.current()
	if p == nil {
		return nil
	}
	if err := p.stop(ctx, signal); err != nil {
		return err
	}
	u.mu.Lock()
	u.process = nil
	u.mu.Unlock()
	return nil
}

func (u *unit) current() *process {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.process
}

func (u *unit) state() State {
	u.mu.Lock()
	defer u.mu.Unlock()
	state := State{Name: u.Name, Starts: u.starts}
	if u.process != nil && !u.process.ended() {
		state.Running, state.PID = true, u.process.pid()
	}
	return state
}
