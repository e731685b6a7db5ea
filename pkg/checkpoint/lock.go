// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
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
	_, unlock, err = l.lock(ctx, int64(h.Sum64()>>2)+1, "claim "+uid)
	return unlock, err
}

// Reserve waits until nobody else decides on the room of this node's cards.
func (l *Locks) Reserve(ctx context.Context) (*Reservation, error) {
	file, unlock, err := l.lock(ctx, reserve, "reservations")
	if err != nil {
		return nil, err
	}
	return &Reservation{file: file, unlock: unlock}, nil
}

// Reservation is the right to decide on the room of this node's cards, until
// Unlock.
type Reservation struct {
	file   *os.File
	unlock func()
}

// Unlock lets others decide.
func (r *Reservation) Unlock() { r.unlock() }

// Mark is another one after every decision, whoever took it. So what is known
// of the records under one mark is still all there is under the same mark, but
// for what was removed meanwhile.
type Mark [16]byte

// Mark is the present one, zero where nobody has decided yet.
func (r *Reservation) Mark() (Mark, error) {
	var m Mark
	if _, err := r.file.ReadAt(m[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return Mark{}, fmt.Errorf("read mark of reservations: %w", err)
	}
	return m, nil
}

// Change makes a new mark. It comes before the decision takes effect: a process
// that dies in between only makes others look once more. The mark is random, so
// that no lost or restored file can bring an old one back.
func (r *Reservation) Change() (Mark, error) {
	var m Mark
	_, _ = rand.Read(m[:]) // never fails (crypto/rand)
	if _, err := r.file.WriteAt(m[:], 0); err != nil {
		return Mark{}, fmt.Errorf("write mark of reservations: %w", err)
	}
	return m, nil
}

func (l *Locks) lock(ctx context.Context, at int64, what string) (*os.File, func(), error) {
	if err := l.lockLocal(ctx, at); err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", what, err)
	}
	file, err := l.lockFile(ctx, at)
	if err != nil {
		l.unlockLocal(at)
		return nil, nil, fmt.Errorf("lock %s: %w", what, err)
	}
	return file, func() {
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
	file, err := l.open()
	if err != nil {
		return nil, err
	}
	flock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: at, Len: 1}
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &flock)
		switch {
		case err == nil && l.isCurrent(file):
			return file, nil
		case err == nil:
			// Somebody removed the file: a lock on it excludes nobody.
			if err := file.Close(); err != nil {
				return nil, err
			}
			if file, err = l.open(); err != nil {
				return nil, err
			}
			continue
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

func (l *Locks) open() (*os.File, error) { return os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600) }

// isCurrent tells whether the open file is the one that others will open.
func (l *Locks) isCurrent(file *os.File) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Stat(l.path)
	return err == nil && os.SameFile(ours, theirs)
}
