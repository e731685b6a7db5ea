// SPDX-License-Identifier: Apache-2.0

// Package durable changes files so that a crash at any moment, of the process
// or of the machine, leaves either the old or the new content: a temporary file
// is written and synced, renamed over the old one, and the directory is synced.
// It holds no state; callers keep two writers off the same path.
package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Files changes files. The zero value is ready for use.
type Files struct {
	// Step, if set, is called before every system call that changes the disk.
	// The crash suite ends the process in it; the product leaves it nil.
	Step func(op, path string)
}

func (f Files) step(op, path string) {
	if f.Step != nil {
		f.Step(op, path)
	}
}

// temporary is the name under which a new content is written. It is always the
// same for a path, so that a retry replaces what a crash left behind, and it
// ends in a suffix that readers of *.json and *.yaml pass over.
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

// Write puts data at path with the given mode, whatever the umask. It returns
// false where the file already has that content and mode, and then removes
// nothing but what a crash left beside it.
func (f Files) Write(path string, data []byte, mode fs.FileMode) (changed bool, err error) {
	tmp := temporary(path)
	if same(path, data, mode) {
		return false, f.removeLeftover(tmp)
	}
	f.step("write", tmp)
	err = writeSynced(tmp, data, mode)
	if err == nil {
		f.step("rename", path)
		err = os.Rename(tmp, path)
	}
	if err != nil {
		// A disk that is full has no room for what is left of the try.
		f.step("remove", tmp)
		_ = os.Remove(tmp)
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, f.syncParent(path)
}

func (f Files) removeLeftover(tmp string) error {
	if _, err := os.Lstat(tmp); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.step("remove", tmp)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove leftover: %w", err)
	}
	return f.syncParent(tmp)
}

func same(path string, data []byte, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode || info.Size() != int64(len(data)) {
		return false
	}
	old, err := os.ReadFile(path) //nolint:gosec // the caller owns the path
	return err == nil && bytes.Equal(old, data)
}

func writeSynced(path string, data []byte, mode fs.FileMode) (err error) {
	// A leftover of a crash may have a mode that forbids opening it.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the caller owns the path
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	return file.Sync()
}

// Remove deletes the file and what a crashed Write left beside it. A missing
// file is success.
func (f Files) Remove(path string) error {
	for _, p := range []string{temporary(path), path} {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		f.step("remove", p)
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return f.syncParent(path)
}

// MkdirAll makes a directory and what is missing of its parents, all with the
// given mode, whatever the umask, and each synced into its own parent. An
// existing directory keeps its inode and gets the mode; existing parents are
// left alone.
func (f Files) MkdirAll(path string, mode fs.FileMode) error {
	if err := f.mkdirAll(filepath.Clean(path), mode); err != nil {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	return nil
}

func (f Files) mkdirAll(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	case err == nil && info.Mode().Perm() == mode:
		return nil
	case err == nil:
		f.step("chmod", path)
		return os.Chmod(path, mode)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := f.mkdirAll(parent, mode); err != nil {
			return err
		}
	}
	f.step("mkdir", path)
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return f.syncParent(path)
}

// RemoveAll deletes a directory with all that is in it. A missing one is success.
func (f Files) RemoveAll(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.IsDir() {
		// Above all not a link: what it leads to is not ours.
		err = syscall.ENOTDIR
	}
	if err != nil {
		return fmt.Errorf("remove directory %s: %w", path, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("remove directory %s: %w", path, err)
	}
	for _, e := range entries {
		p := filepath.Join(path, e.Name())
		f.step("remove", p)
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("remove directory %s: %w", path, err)
		}
	}
	f.step("rmdir", path)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove directory %s: %w", path, err)
	}
	return f.syncParent(path)
}

func (f Files) syncParent(path string) error {
	parent := filepath.Dir(path)
	f.step("sync", parent)
	dir, err := os.Open(parent) //nolint:gosec // the caller owns the path
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", parent, err)
	}
	err = errors.Join(dir.Sync(), dir.Close())
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", parent, err)
	}
	return nil
}
