// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/lock"
)

// every is how often a build says that it still goes on.
const every = 30 * time.Second

// Set is a directory with every program, held for this process.
type Set struct {
	// Dir holds the programs; it must not be written to.
	Dir  string
	lock *lock.Lock
}

// Release lets others prune the directory.
func (s *Set) Release() error { return s.lock.Release() }

// Builder builds and finds sets.
type Builder struct {
	// Sources is the directory tests/cluster of the repository.
	Sources string
	// Cache is where the sets live.
	Cache string
	// Say tells the user something.
	Say func(format string, args ...any)
	// Finish adds to a new set what is not built by Go.
	Finish func(dir string) error
}

// Ensure returns the set for the present sources and builds it where there is none.
func (b Builder) Ensure(ctx context.Context) (*Set, error) {
	version, err := output(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	name, err := hash(b.Sources, version)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.Cache, name)
	if held, err := lock.TryShared(dir); err == nil {
		return &Set{Dir: dir, lock: held}, nil
	}
	if err := os.MkdirAll(b.Cache, 0o750); err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	gate, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	set, err := b.ensure(ctx, dir)
	return set, errors.Join(err, gate.Release())
}

// enter waits for its turn: one build at a time is as fast as two, and the second finds the first one's results.
func (b Builder) enter(ctx context.Context) (*lock.Lock, error) {
	begin := time.Now()
	for {
		turn, cancel := context.WithTimeout(ctx, every)
		gate, err := lock.Exclusive(turn, b.Cache)
		cancel()
		if !errors.Is(err, lock.ErrHeld) || ctx.Err() != nil {
			return gate, err
		}
		b.Say("still waiting for another build into %s: %s elapsed", b.Cache, elapsed(begin))
	}
}

// ensure is Ensure inside the gate.
func (b Builder) ensure(ctx context.Context, dir string) (*Set, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := b.build(ctx, dir); err != nil {
			return nil, err
		}
	}
	held, err := lock.TryShared(dir)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // only the order of pruning hangs on it
	if err := prune(b.Cache); err != nil {
		return nil, errors.Join(err, held.Release())
	}
	return &Set{Dir: dir, lock: held}, nil
}

func (b Builder) build(ctx context.Context, dir string) (err error) {
	begin := time.Now()
	b.Say("building the cluster's programs into %s", dir)
	draft := dir + draftSuffix
	if err := os.RemoveAll(draft); err != nil { // from a build that was killed
		return fmt.Errorf("clear unfinished build: %w", err)
	}
	if err := os.Mkdir(draft, 0o750); err != nil {
		return fmt.Errorf("create build directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(draft))
		}
	}()
	for _, s := range steps() {
		if err := b.run(ctx, s, draft); err != nil {
			return err
		}
	}
	if err := b.Finish(draft); err != nil {
		return err
	}
	if err := os.Rename(draft, dir); err != nil {
		return fmt.Errorf("publish build: %w", err)
	}
	b.Say("built everything in %s", elapsed(begin))
	return nil
}

func (b Builder) run(ctx context.Context, s step, draft string) error {
	begin := time.Now()
	b.Say("building %s (%s)", s.what, s.expect)
	args := append(append([]string{}, flags...), "-ldflags="+strings.Join(append(append([]string{}, strip...), s.ldflags...), " "))
	args = append(append(args, "-o", filepath.Join(draft, s.output)+trailing(s.output)), s.packages...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = filepath.Join(b.Sources, s.dir)
	command.Env = append(os.Environ(), environment...)
	// go passes no signal on to its compilers: end the whole group.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	progress := newProgress()
	command.Stderr = progress
	finished := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		b.tell(s, progress, begin, finished)
	}()
	err := command.Run()
	close(finished)
	<-told
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", s.what, err, progress.rest())
	}
	for _, name := range s.links {
		if err := os.Symlink(s.output, filepath.Join(draft, name)); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	b.Say("built %s in %s", s.what, elapsed(begin))
	return nil
}

// trailing makes go build take the output for a directory.
func trailing(output string) string {
	if output == "." {
		return string(filepath.Separator)
	}
	return ""
}

func (b Builder) tell(s step, p *progress, begin time.Time, finished <-chan struct{}) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-finished:
			return
		case <-ticker.C:
			b.Say("still building %s: %s elapsed, %d packages compiled (%s)", s.what, elapsed(begin), p.packages.Load(), s.expect)
		}
	}
}

// progress reads what go build -v says: one line a package, and errors.
type progress struct {
	packages atomic.Int64
	lines    []string // only touched by Write, and by rest after the build
	partial  string
}

func newProgress() *progress { return &progress{} }

// Write implements io.Writer for the command's standard error.
func (p *progress) Write(text []byte) (int, error) {
	p.partial += string(text)
	for {
		line, rest, whole := strings.Cut(p.partial, "\n")
		if !whole {
			return len(text), nil
		}
		p.partial = rest
		if strings.ContainsAny(line, " \t#") {
			p.lines = append(p.lines, line+"\n")
		} else {
			p.packages.Add(1)
		}
	}
}

// rest is what was not about progress.
func (p *progress) rest() string {
	return strings.Join(p.lines[max(0, len(p.lines)-40):], "") + p.partial
}

func elapsed(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
