// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// hold keeps the version in dir from being pruned. The caller has the root's lock,
// so nobody is pruning.
func (s *Store) hold(dir string) error {
	file, err := flock(dir, unix.LOCK_SH)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		return file.Close() // it is held already: what a process brings along does not change
	}
	s.held = file
	return nil
}

// Close lets go of the store's own version.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held
	if s.held = nil; held == nil {
		return nil
	}
	return held.Close()
}

// Prune removes the versions that no running driver holds and that are not among
// those which inUse gives, and returns them. inUse is asked only where there is
// something to remove, and after it is certain that nobody can give that to a
// claim any more: what a driver had given until then is on the disk. An error of
// inUse means that nothing is removed. Whoever is interrupted leaves versions that
// are whole, and drafts that the next one removes.
func (s *Store) Prune(ctx context.Context, inUse func() ([]Digest, error)) (removed []Digest, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("remove unused versions of the sharing runtime: %w", err)
		}
	}()
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	unheld, release, err := s.unheld()
	defer release()
	if err != nil || len(unheld) == 0 {
		return nil, err
	}
	used, err := inUse()
	if err != nil {
		return nil, err
	}
	for _, d := range unheld {
		if slices.Contains(used, d) {
			continue
		}
		if err := s.remove(d); err != nil {
			return removed, err
		}
		removed = append(removed, d)
	}
	return removed, nil
}

// unheld are the versions but this process's own that no driver holds. None can
// take one again before the root's lock is free.
func (s *Store) unheld() (found []Digest, release func(), err error) {
	var files []*os.File
	release = func() {
		for _, f := range files {
			_ = f.Close() // opened for reading
		}
	}
	own, err := s.digest()
	if err != nil {
		return nil, release, err
	}
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return nil, release, err
	}
	for _, e := range entries {
		d, ok := digestOf(e.Name())
		if !ok || d == own {
			continue
		}
		file, err := flock(filepath.Join(s.root, e.Name()), unix.LOCK_EX)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			continue
		case err != nil:
			return nil, release, err
		}
		files, found = append(files, file), append(found, d)
	}
	return found, release, nil
}

// remove takes the name away before the content, and durably so: what has a
// version's name is whole, even after a power cut.
func (s *Store) remove(d Digest) error {
	runtime, err := s.place(d)
	if err != nil {
		return err
	}
	draft := filepath.Join(s.root, draftPrefix+filepath.Base(runtime.Dir))
	if err := os.Rename(runtime.Dir, draft); err != nil {
		return err
	}
	if err := syncDir(s.root); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.sound, d) // should it be installed again, it is compared again
	s.mu.Unlock()
	return os.RemoveAll(draft)
}

// flock locks a directory without waiting.
func flock(dir string, how int) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), file.Close())
	}
	return file, nil
}
