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
	// draftPrefix is that of directories which are not complete yet.
	draftPrefix = ".draft-"
	// retryLock is the pause between two tries while somebody else installs.
	retryLock = 5 * time.Millisecond
)

// Install copies the libraries in from into root, and returns where they are. A
// version that is there already is compared and left alone; one that is there and
// damaged is an error, since containers may be using it. Two that install at the
// same time wait for each other until ctx ends.
func Install(ctx context.Context, from, root string) (cdi.Runtime, error) {
	runtime, err := install(ctx, from, root)
	if err != nil {
		return cdi.Runtime{}, fmt.Errorf("install the sharing runtime: %w", err)
	}
	return runtime, nil
}

func install(ctx context.Context, from, root string) (cdi.Runtime, error) {
	digest, err := Of(from)
	if err != nil {
		return cdi.Runtime{}, err
	}
	// Only one that is missing is made: the mode of one that exists is the
	// business of who made it.
	if err := os.MkdirAll(root, 0o755); err != nil { //nolint:gosec // containers' runtimes read it under any user
		return cdi.Runtime{}, err
	}
	unlock, err := lock(ctx, filepath.Join(root, lockName))
	if err != nil {
		return cdi.Runtime{}, err
	}
	defer unlock()
	// Whoever made these is dead, or it would hold the lock.
	if err := removeDrafts(root); err != nil {
		return cdi.Runtime{}, err
	}
	store := NewStore(root, from)
	runtime, err := store.place(digest)
	if err != nil {
		return cdi.Runtime{}, err
	}
	if _, err := os.Lstat(runtime.Dir); err == nil {
		if err := store.Verify(digest); err != nil {
			return cdi.Runtime{}, fmt.Errorf("%w: move it away, and install again; pods that use it keep it until they end", err)
		}
		return runtime, nil
	}
	return runtime, place(digest, from, root, runtime.Dir)
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

// lock waits until nobody else installs. The kernel frees the lock when the
// process dies.
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
