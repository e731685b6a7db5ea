// SPDX-License-Identifier: Apache-2.0

// Package durable changes files so that a crash at any moment, of the process
// or of the machine, leaves either the old or the new content: a temporary file
// is written and synced, then renamed over the old one. Where a name appears or
// goes the directory is synced too; where it only gets another content a power
// cut may bring the old one back, which callers are ready for: it ends with a
// boot, and every boot compares. It holds no state; callers keep two writers off
// the same path.
//
// Syncing is what preparing a claim spends its time on. So a change can be split
// (Stage, Publish, Settle), which keeps the waiting for the disk out of a lock,
// and files that are made again after a power cut anyway need not be synced
// (Files.Derived).
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
	// Derived files are still changed atomically as far as other processes
	// see, but not synced: a power cut may lose or empty them. It is for what
	// is compared with its source, and written again, after every boot.
	Derived bool
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
	if same(path, data, mode) {
		return false, f.removeLeftover(temporary(path))
	}
	_, err = os.Lstat(path)
	replaces := err == nil
	staged, err := f.Stage(path, data, mode)
	if err != nil {
		return false, err
	}
	if err := staged.Publish(); err != nil || replaces {
		return err == nil, err
	}
	return true, staged.Settle()
}

// Staged is a content that is on disk under a temporary name. It ends with
// Publish and Settle, or with Discard.
type Staged struct {
	files Files
	path  string
}

// Stage writes data beside path, where no reader sees it yet.
func (f Files) Stage(path string, data []byte, mode fs.FileMode) (Staged, error) {
	staged := Staged{f, path}
	f.step("write", temporary(path))
	if err := f.writeAside(temporary(path), data, mode); err != nil {
		staged.Discard()
		return Staged{}, fmt.Errorf("write %s: %w", path, err)
	}
	return staged, nil
}

// Publish gives the content its name: from here on readers see it. It does not
// wait for the disk.
func (s Staged) Publish() error {
	s.files.step("rename", s.path)
	if err := os.Rename(temporary(s.path), s.path); err != nil {
		s.Discard()
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	return nil
}

// Settle makes the name outlive a power cut.
func (s Staged) Settle() error { return s.files.syncParent(s.path) }

// Discard removes what was staged, best effort: a disk that is full has no room
// for what is left of a try, and what stays is replaced by the next.
func (s Staged) Discard() {
	s.files.step("remove", temporary(s.path))
	_ = os.Remove(temporary(s.path))
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
	old, err := os.ReadFile(path)
	return err == nil && bytes.Equal(old, data)
}

func (f Files) writeAside(path string, data []byte, mode fs.FileMode) (err error) {
	// A leftover of a crash may have a mode that forbids opening it.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
	if f.Derived {
		return nil
	}
	f.step("fsync", path)
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
	if f.Derived {
		return nil
	}
	parent := filepath.Dir(path)
	f.step("sync", parent)
	dir, err := os.Open(parent)
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
