// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/cdi"
)

const (
	lockName = ".lock"
	// draftPrefix is that of directories which are not complete: yet, or any more.
	draftPrefix = ".draft-"
	// retryLock is the pause between two tries while somebody else installs.
	retryLock = 5 * time.Millisecond
)

// Install copies the libraries in from into root, and returns where they are. A
// version that is there already is compared and left alone; one that is there and
// damaged is an error, since containers may be using it. Two that install at the
// same time wait for each other until ctx ends.
func Install(ctx context.Context, from, root string) (cdi.Runtime, error) {
	return NewStore(root, from).install(ctx, func(string) error { return nil })
}

// Install installs the store's own version as the function of that name does. No
// Prune of any process removes it before Close, or the end of this process.
func (s *Store) Install(ctx context.Context) (cdi.Runtime, error) {
	return s.install(ctx, s.hold)
}

// install calls hold with the version's directory before others may prune it.
func (s *Store) install(ctx context.Context, hold func(dir string) error) (cdi.Runtime, error) {
	runtime, err := s.installed(ctx, hold)
	if err != nil {
		return cdi.Runtime{}, fmt.Errorf("install the sharing runtime: %w", err)
	}
	return runtime, nil
}

func (s *Store) installed(ctx context.Context, hold func(dir string) error) (runtime cdi.Runtime, err error) {
	digest, err := Of(s.source)
	if err != nil {
		return runtime, err
	}
	// Only one that is missing is made: the mode of one that exists is the
	// business of who made it.
	if err := os.MkdirAll(s.root, 0o755); err != nil { //nolint:gosec // containers' runtimes read it under any user
		return runtime, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return runtime, err
	}
	defer unlock()
	runtime, err = s.place(digest)
	if err != nil {
		return runtime, err
	}
	if _, err := os.Lstat(runtime.Dir); err == nil {
		if err := s.Verify(digest); err != nil {
			return runtime, fmt.Errorf("%w: move it away, and install again; pods that use it keep it until they end", err)
		}
		return runtime, hold(runtime.Dir)
	}
	if err := place(digest, s.source, s.root, runtime.Dir); err != nil {
		return runtime, err
	}
	return runtime, hold(runtime.Dir)
}

// place copies the files to a draft and gives it its name at the end.
func place(digest Digest, from, root, dir string) (err error) {
	draft, err := os.MkdirTemp(root, draftPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(draft))
		}
	}()
	for _, name := range files() {
		to := filepath.Join(draft, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // it is mounted into containers of any user
			return err
		}
		if err := copyFile(filepath.Join(from, name), to); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(to)); err != nil {
			return err
		}
	}
	if err := os.Chmod(draft, 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	// What was copied is compared: the source may have been changed meanwhile.
	if found, err := Of(draft); err != nil || found != digest {
		return errors.Join(fmt.Errorf("copy %s: it was changed meanwhile", from), err)
	}
	if err := syncDir(draft); err != nil {
		return err
	}
	if err := os.Rename(draft, dir); err != nil {
		return err
	}
	return syncDir(root)
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // opened for reading
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	if err := target.Chmod(0o555); err != nil {
		return err
	}
	return target.Sync()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func removeDrafts(root string) error {
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, e.Name())))
		}
	}
	return err
}

// lock waits until nobody else installs or prunes, and removes what those left
// who died in the middle: nobody else makes drafts while the lock is held.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = lock(ctx, filepath.Join(s.root, lockName))
	if err != nil {
		return nil, err
	}
	if err := removeDrafts(s.root); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lock waits for a file's lock. The kernel frees it when the process dies.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	pause := time.NewTicker(retryLock)
	defer pause.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for somebody else who installs (lock %s): %w", path, ctx.Err()), file.Close())
		case <-pause.C:
		}
	}
}
