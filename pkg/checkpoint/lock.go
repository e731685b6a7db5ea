// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Locks keep two changes of the same claim apart, within this process and
// against the other driver of a rolling update. All locks are byte ranges of
// one file (open file description locks, fcntl(2)): nothing is left behind per
// claim, and the kernel frees them when the process dies.
type Locks struct {
	path string

	mu    sync.Mutex
	local map[int64]*local
}

// local is the part of a lock inside this process: the kernel's lock is only
// tried by the one who holds it, so waiting here costs no system calls.
type local struct {
	held    chan struct{}
	waiting int
}

// reserve is the byte that stands for "who may hold which room".
const reserve int64 = 0

// retryLock is the pause between two tries while the other driver holds a lock.
const retryLock = 2 * time.Millisecond

// NewLocks uses the file at path, which is made if it is missing.
func NewLocks(path string) *Locks {
	return &Locks{path: path, local: map[int64]*local{}}
}

// Claim waits until nobody else changes the claim. The error is the context's,
// or the file's where it cannot be opened.
func (l *Locks) Claim(ctx context.Context, uid string) (unlock func(), err error) {
	h := fnv.New64a()
	h.Write([]byte(uid))
	// Two claims on one byte only wait for each other. The sum stays positive
	// and never is the byte of the reservation.
	return l.lock(ctx, int64(h.Sum64()>>2)+1, "claim "+uid)
}

// Reserve waits until nobody else decides on the room of this node's cards.
func (l *Locks) Reserve(ctx context.Context) (unlock func(), err error) {
	return l.lock(ctx, reserve, "reservations")
}

func (l *Locks) lock(ctx context.Context, at int64, what string) (func(), error) {
	if err := l.lockLocal(ctx, at); err != nil {
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	file, err := l.lockFile(ctx, at)
	if err != nil {
		l.unlockLocal(at)
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	return func() {
		// Closing the only descriptor frees the kernel's lock.
		_ = file.Close()
		l.unlockLocal(at)
	}, nil
}

func (l *Locks) lockLocal(ctx context.Context, at int64) error {
	l.mu.Lock()
	entry, ok := l.local[at]
	if !ok {
		entry = &local{held: make(chan struct{}, 1)}
		l.local[at] = entry
	}
	entry.waiting++
	l.mu.Unlock()
	select {
	case entry.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.leave(at, entry)
		return context.Cause(ctx)
	}
}

func (l *Locks) unlockLocal(at int64) {
	l.mu.Lock()
	entry := l.local[at]
	l.mu.Unlock()
	<-entry.held
	l.leave(at, entry)
}

func (l *Locks) leave(at int64, entry *local) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry.waiting--; entry.waiting == 0 {
		delete(l.local, at)
	}
}

func (l *Locks) lockFile(ctx context.Context, at int64) (*os.File, error) {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	flock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: at, Len: 1}
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &flock)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES):
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-time.After(retryLock):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		}
	}
}
