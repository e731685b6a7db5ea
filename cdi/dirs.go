// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Dirs keeps the directories of shares, one a share. A container has its
// share's directory mounted, and the mount holds on to the inode: a directory
// is made once and never replaced while its share lives.
type Dirs struct {
	root  string
	files durable.Files
}

// NewDirs keeps share directories in root. It does not touch the disk.
func NewDirs(root string, files durable.Files) Dirs { return Dirs{root: root, files: derived(files)} }

// Holding is what a share holds by its share.json, for the case that its record
// is lost. Of a file of a newer version, whose meaning is not known, names and
// amounts are taken at face value: room that may be held counts as held.
func (d Dirs) Holding(k share.Key) (share.Share, bool) {
	data, err := os.ReadFile(filepath.Join(d.Path(k), ShareFileName))
	if err != nil {
		return share.Share{}, false
	}
	doc, err := ParseShareFile(data)
	if errors.Is(err, ErrVersion) {
		err = json.Unmarshal(data, &doc)
	}
	return doc.Share(), err == nil && doc.Card.UUID != ""
}

// derived is how specs and share directories are written: atomically, but
// without waiting for the disk. Both are made from records. A power cut ends the
// boot that they belong to, and after every boot all of them are compared with
// the records and written again where they differ, before any container that
// needs them can start.
func derived(files durable.Files) durable.Files {
	files.Derived = true
	return files
}

// Path is the directory of a share.
func (d Dirs) Path(k share.Key) string { return filepath.Join(d.root, string(k)) }

// Write makes the share's directory where it is missing, and puts share.json
// into it, atomically and readable by everybody. It returns false where both were
// there. A share.json with other content is replaced by rename; nothing else
// in the directory is touched.
func (d Dirs) Write(k share.Key, shareJSON []byte) (changed bool, err error) {
	if err := checkKey(k); err != nil {
		return false, fmt.Errorf("write share directory: %w", err)
	}
	if err := d.files.MkdirAll(d.Path(k), 0o755); err != nil {
		return false, fmt.Errorf("write share directory: %w", err)
	}
	changed, err = d.files.Write(filepath.Join(d.Path(k), ShareFileName), shareJSON, 0o444)
	if err != nil {
		return false, fmt.Errorf("write share directory: %w", err)
	}
	return changed, nil
}

// Remove deletes the directory of a share with all that is in it. A share
// without one is success. share.json goes first: to the arbiter that is the
// sign that the share has ended, so that it does not open the socket again
// while the directory is being emptied.
func (d Dirs) Remove(k share.Key) error {
	if err := checkKey(k); err != nil {
		return fmt.Errorf("remove share directory: %w", err)
	}
	if err := d.files.Remove(filepath.Join(d.Path(k), ShareFileName)); err != nil {
		return fmt.Errorf("remove share directory: %w", err)
	}
	if err := d.files.RemoveAll(d.Path(k)); err != nil {
		return fmt.Errorf("remove share directory: %w", err)
	}
	return nil
}

// List names the shares that have a directory, complete or not, sorted. What
// is not a share's directory is passed over; a missing root has none.
func (d Dirs) List() ([]share.Key, error) {
	return d.list(func(k share.Key) bool { return checkKey(k) == nil })
}

// Of names the shares of one claim that have a directory, as List does.
func (d Dirs) Of(claimUID string) ([]share.Key, error) {
	return d.list(func(k share.Key) bool { return k.BelongsTo(claimUID) })
}

func (d Dirs) list(wanted func(share.Key) bool) ([]share.Key, error) {
	entries, err := os.ReadDir(d.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list share directories: %w", err)
	}
	var keys []share.Key
	for _, e := range entries {
		if k := share.Key(e.Name()); e.IsDir() && wanted(k) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}
