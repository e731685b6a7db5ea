// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A machine that is itself a guest, or has more to do than it can, stands still at times,
// with everything that is to share a card. What happens then is not measured.
const (
	pulse     = time.Millisecond
	stoodIsIf = 3 * time.Millisecond
)

// standstills collects when the machine's processors stood still. Each is looked at by a
// thread of its own that runs before everything else, every millisecond.
type standstills struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	all  []span
	errs []error
}

func watchStandstills(ctx context.Context) *standstills {
	s := &standstills{}
	ctx, s.stop = context.WithCancel(ctx)
	for cpu := range runtime.NumCPU() {
		s.done.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if err := s.follow(ctx, cpu); err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.errs = append(s.errs, err)
			}
		})
	}
	return s
}

// end returns what was seen.
func (s *standstills) end() ([]span, error) {
	s.stop()
	s.done.Wait()
	return s.all, errors.Join(s.errs...)
}

func (s *standstills) follow(ctx context.Context, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 2}, 0); err != nil {
		return os.NewSyscallError("sched_setattr", err)
	}
	last, err := monotonic()
	for err == nil && ctx.Err() == nil {
		until := unix.NsecToTimespec((last + pulse).Nanoseconds())
		if err = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil); errors.Is(err, unix.EINTR) {
			err = nil
		}
		if err != nil {
			return os.NewSyscallError("clock_nanosleep", err)
		}
		var now time.Duration
		if now, err = monotonic(); now-last > pulse+stoodIsIf {
			s.mu.Lock()
			s.all = append(s.all, span{last + pulse, now})
			s.mu.Unlock()
		}
		last = now
	}
	return err
}
