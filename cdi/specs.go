// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/tranche-dra/tranche/pkg/durable"
)

const specSuffix = ".json"

// Specs keeps the CDI specs of claims, one file a claim, in a directory that
// the container runtime watches and that belongs to all CDI users of the node.
type Specs struct {
	dir   string
	files durable.Files
}

// NewSpecs keeps specs in dir. It does not touch the disk.
func NewSpecs(dir string, files durable.Files) Specs { return Specs{dir: dir, files: derived(files)} }

// Path is the file of a claim's spec.
func (s Specs) Path(claimUID string) string {
	return filepath.Join(s.dir, cdilib.GenerateTransientSpecName(Vendor, Class, claimUID)+specSuffix)
}

// Write puts the spec of a claim in place, atomically. It returns false, and
// touches nothing, where that very spec is there. A missing directory is made;
// ErrDirectoryGone says that it was deleted under this process.
func (s Specs) Write(claimUID string, data []byte) (changed bool, err error) {
	if err := checkUID(claimUID); err != nil {
		return false, fmt.Errorf("write CDI spec: %w", err)
	}
	// Only a missing directory is made: the mode of one that exists is the
	// business of who made it.
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		if err := s.files.MkdirAll(s.dir, 0o755); err != nil {
			return false, fmt.Errorf("write CDI spec: %w", err)
		}
	}
	changed, err = s.files.Write(s.Path(claimUID), data, 0o644)
	if err != nil {
		if gone := s.Check(); errors.Is(gone, ErrDirectoryGone) {
			return false, fmt.Errorf("write CDI spec of claim %s: %w", claimUID, gone)
		}
		return false, fmt.Errorf("write CDI spec: %w", err)
	}
	return changed, nil
}

// Remove deletes the spec of a claim and what a crashed Write left of it. A
// claim without one is success.
func (s Specs) Remove(claimUID string) error {
	if err := checkUID(claimUID); err != nil {
		return fmt.Errorf("remove CDI spec: %w", err)
	}
	if err := s.files.Remove(s.Path(claimUID)); err != nil {
		return fmt.Errorf("remove CDI spec: %w", err)
	}
	return nil
}

// List names the claims of which there is a spec, or what a crashed Write left
// of one: the UIDs for which Remove has something to do, sorted. Files of other
// CDI users are passed over; a missing directory has no specs.
func (s Specs) List() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	var uids []string
	for _, e := range entries {
		if uid, ok := claimOf(e.Name()); ok && e.Type().IsRegular() {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// claimOf is the claim whose spec, or left-over of a spec, has that file name.
func claimOf(name string) (uid string, ok bool) {
	if left, isLeft := strings.CutSuffix(name, ".tmp"); isLeft {
		name = strings.TrimPrefix(left, ".")
	}
	name, isOurs := strings.CutPrefix(name, cdilib.GenerateTransientSpecName(Vendor, Class, ""))
	uid, isSpec := strings.CutSuffix(name, specSuffix)
	return uid, isOurs && isSpec && checkUID(uid) == nil
}

// Check tells whether specs can be written. ErrDirectoryGone means that the
// directory was deleted under this process, which has to end; fs.ErrNotExist
// that it is missing, which Write mends; any other error that the node does
// not let this process write there.
func (s Specs) Check() error {
	info, err := os.Stat(s.dir)
	if err != nil {
		return fmt.Errorf("check CDI directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("check CDI directory: %s is not a directory", s.dir)
	}
	// A bind mount keeps a deleted directory alive, with no links left.
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && sys.Nlink == 0 {
		return fmt.Errorf("check CDI directory %s: %w", s.dir, ErrDirectoryGone)
	}
	if err := unix.Access(s.dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("check CDI directory: write to %s: %w", s.dir, err)
	}
	return nil
}
