// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tranche-dra/tranche/tests/sandbox"
)

// ErrHangs is a program that did not do anything in time.
var ErrHangs = errors.New("it hangs")

// Line is what a client said: a word, and values by their keys.
type Line struct {
	Word   string
	Values map[string]string
	// Text is the line as it was.
	Text string
}

func parseLine(text string) Line {
	line := Line{Text: text, Values: map[string]string{}}
	for i, field := range strings.Fields(text) {
		if key, value, ok := strings.Cut(field, "="); ok {
			line.Values[key] = value
		} else if i == 0 {
			line.Word = field
		}
	}
	return line
}

// Number is a value that is one; false where it is not there.
func (l Line) Number(key string) (uint64, bool) {
	n, err := strconv.ParseUint(l.Values[key], 10, 64)
	return n, err == nil
}

// Program is a client that runs in a box, line by line.
type Program struct {
	*sandbox.Program

	stdin  *os.File
	lines  chan string
	mu     sync.Mutex
	stderr strings.Builder
	ended  sync.WaitGroup
}

// Start starts a client in a box. The environment is Environment, with what is
// given besides.
func Start(box *sandbox.Box, cmd *exec.Cmd) (*Program, error) {
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close(), inWrite.Close())
	}
	p := &Program{stdin: inWrite, lines: make(chan string, 4096)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inRead, outWrite, (*complaints)(p)
	p.Program, err = box.Start(cmd)
	err = errors.Join(err, inRead.Close(), outWrite.Close())
	if p.Program == nil {
		return nil, errors.Join(err, inWrite.Close(), outRead.Close())
	}
	p.ended.Go(func() {
		defer outRead.Close() //nolint:errcheck // read to its end
		defer close(p.lines)
		for scanner := bufio.NewScanner(outRead); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	})
	return p, err
}

// complaints collects what a program writes to stderr.
type complaints Program

// Write implements io.Writer.
func (c *complaints) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.Write(data)
}

// Complaints are what the program wrote to stderr so far.
func (p *Program) Complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Line waits for the next line of the program.
func (p *Program) Line() (Line, error) {
	return p.lineWithin(Patience)
}

func (p *Program) lineWithin(patience time.Duration) (Line, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case text, ok := <-p.lines:
		if !ok {
			return Line{}, fmt.Errorf("%w: the program says no more: %s", io.EOF, p.Complaints())
		}
		return parseLine(text), nil
	case <-timer.C:
		return Line{}, fmt.Errorf("%w: no line within %s: %s", ErrHangs, patience, p.Complaints())
	}
}

// Expect waits for a line that begins with this word, which must be the next one.
func (p *Program) Expect(word string) (Line, error) {
	line, err := p.Line()
	if err == nil && line.Word != word {
		err = fmt.Errorf("the program says %q, want %q: %s", line.Text, word, p.Complaints())
	}
	return line, err
}

// Say writes a line to the program.
func (p *Program) Say(line string) error {
	_, err := p.stdin.WriteString(line + "\n")
	return err
}

// Ask writes a line and waits for the answer.
func (p *Program) Ask(line string) (Line, error) {
	if err := p.Say(line); err != nil {
		return Line{}, fmt.Errorf("tell the program to %q: %w: %s", line, err, p.Complaints())
	}
	return p.Line()
}

// End closes the program's stdin and waits for its end: the error of a bad one has
// what it complained of. What it still says is returned.
func (p *Program) End() ([]Line, error) {
	err := p.stdin.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	var rest []Line
	for {
		line, lineErr := p.Line()
		if lineErr != nil {
			if !errors.Is(lineErr, io.EOF) {
				err = errors.Join(err, lineErr, p.Signal(syscall.SIGKILL))
			}
			break
		}
		rest = append(rest, line)
	}
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		err = errors.Join(err, fmt.Errorf("%w: it has not ended within %s", ErrHangs, Patience), p.Signal(syscall.SIGKILL))
	}
	p.ended.Wait()
	if waited := p.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", waited, p.Complaints()))
	}
	return rest, err
}

// Environment is what programs in boxes have, unless a test says otherwise.
func Environment(more ...string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root",
		// The first fault that a sanitizer finds ends the program; that memory is left
		// at the end is the programs' intention.
		"ASAN_OPTIONS=detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS=print_stacktrace=1", "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:atexit_sleep_ms=10",
	}
	return append(env, more...)
}

// Run runs a client in a box to its end and returns what it said.
func Run(ctx context.Context, box *sandbox.Box, name string, args ...string) ([]Line, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = Environment()
	return RunCommand(ctx, box, cmd)
}

// RunCommand is Run for a command that is set up already. When ctx ends, the
// program is killed.
func RunCommand(ctx context.Context, box *sandbox.Box, cmd *exec.Cmd) ([]Line, error) {
	p, err := Start(box, cmd)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { p.Signal(syscall.SIGKILL) }) //nolint:errcheck // it may have ended
	defer stop()
	if err := p.stdin.Close(); err != nil {
		return nil, err
	}
	var lines []Line
	for text := range p.lines {
		lines = append(lines, parseLine(text))
	}
	p.ended.Wait()
	if err := p.Wait(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ErrHangs, err)
		}
		return lines, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, p.Complaints())
	}
	return lines, nil
}
