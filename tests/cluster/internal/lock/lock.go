// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process holds a lock that excludes the one wanted.
var ErrHeld = errors.New("lock is held by another process")

// Lock is a held lock. It is released by Release or by the end of the process.
type Lock struct{ file *os.File }

// Exclusive waits until nobody else holds dir, or the context ends.
func Exclusive(ctx context.Context, dir string) (*Lock, error) {
	// Asked again and again: a flock that waits heeds no context.
	for {
		held, err := TryExclusive(dir)
		if !errors.Is(err, ErrHeld) {
			return held, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TryExclusive takes dir if nobody holds it, and returns ErrHeld otherwise.
func TryExclusive(dir string) (*Lock, error) { return take(dir, unix.LOCK_EX) }

// TryShared takes dir together with other shared holders, and returns ErrHeld
// where one holds it exclusively.
func TryShared(dir string) (*Lock, error) { return take(dir, unix.LOCK_SH) }

func take(dir string, how int) (*Lock, error) {
	// Not through a link: in a shared temporary directory anybody may leave one.
	file, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory to lock: %w", err)
	}
	for {
		err = unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = ErrHeld
		fallthrough
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock directory %s: %w", dir, err), file.Close())
	}
	return &Lock{file: file}, nil
}

// Release gives the lock back.
func (l *Lock) Release() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}
