// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
)

const suffix = ".json"

// Store reads and writes records. It is safe for concurrent use; two writers
// of the same claim are kept apart by the caller's claim lock.
type Store struct {
	dir   string
	files durable.Files

	mu    sync.Mutex
	cache map[string]cached
}

// cached is a decoded file together with what tells whether the file on disk
// is still the one that was decoded. Every write makes a new inode.
type cached struct {
	inode, size int64
	modified    time.Time
	record      Record
	err         error
}

// settled is the age from which a file is cached. File systems count time in
// steps of up to 10 ms and give a freed inode to the next file: a younger file
// may be replaced by one that cannot be told from it.
const settled = 50 * time.Millisecond

// NewStore opens the records in dir, which is made if it is missing.
func NewStore(dir string, files durable.Files) (*Store, error) {
	for _, d := range []string{dir, filepath.Join(dir, "damaged")} {
		if err := files.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("open records: %w", err)
		}
	}
	return &Store{dir: dir, files: files, cache: map[string]cached{}}, nil
}

func (s *Store) path(uid string) (string, error) {
	if !share.UsableUID(uid) {
		return "", fmt.Errorf("claim UID %q is not usable as a file name: letters, digits and hyphens are", uid)
	}
	return filepath.Join(s.dir, uid+suffix), nil
}

// Check tells whether records can be kept. ErrDirectoryGone means that the
// directory was deleted under this process, which has to end: a mount of it
// stays dead.
func (s *Store) Check() error {
	info, err := os.Stat(s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("check records in %s: %w", s.dir, ErrDirectoryGone)
	case err != nil:
		return fmt.Errorf("check records: %w", err)
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && sys.Nlink == 0 {
		return fmt.Errorf("check records in %s: %w", s.dir, ErrDirectoryGone)
	}
	return nil
}

// Write puts a record on disk and returns whether the file had to change.
func (s *Store) Write(r Record) (changed bool, err error) {
	path, err := s.path(r.Claim.UID)
	if err != nil {
		return false, fmt.Errorf("write record: %w", err)
	}
	data, err := Encode(r)
	if err != nil {
		return false, err
	}
	changed, err = s.files.Write(path, data, 0o600)
	if err != nil {
		return false, fmt.Errorf("write record of claim %s: %w", r.Claim, err)
	}
	return changed, nil
}

// Stage puts a record on disk where nobody sees it yet; publishing it is then a
// rename, quick enough to be done under a lock.
func (s *Store) Stage(r Record) (durable.Staged, error) {
	path, err := s.path(r.Claim.UID)
	if err != nil {
		return durable.Staged{}, fmt.Errorf("write record: %w", err)
	}
	data, err := Encode(r)
	if err != nil {
		return durable.Staged{}, err
	}
	staged, err := s.files.Stage(path, data, 0o600)
	if err != nil {
		return staged, fmt.Errorf("write record of claim %s: %w", r.Claim, err)
	}
	return staged, nil
}

// Read gets the record of a claim. It returns false where there is none, and
// an error that wraps ErrDamaged, ErrNewer or ErrUnreadable where there is one
// that cannot be used.
func (s *Store) Read(uid string) (Record, bool, error) {
	path, err := s.path(uid)
	if err != nil {
		return Record{}, false, fmt.Errorf("read record: %w", err)
	}
	r, err := s.load(path, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	return r, err == nil, err
}

// Remove deletes the record of a claim and what stands damaged under its name.
func (s *Store) Remove(uid string) error {
	path, err := s.path(uid)
	if err != nil {
		return fmt.Errorf("remove record: %w", err)
	}
	for _, p := range []string{path, s.damagedPath(uid)} {
		if err := s.files.Remove(p); err != nil {
			return fmt.Errorf("remove record: %w", err)
		}
	}
	return nil
}

// Bad is a file that is not a usable record.
type Bad struct {
	ClaimUID string
	Err      error
}

// Listing is everything in the store.
type Listing struct {
	Records []Record
	// Bad files, those set aside earlier among them. What such a claim holds
	// is known from its share directories alone.
	Bad []Bad
}

// List reads all records.
func (s *Store) List() (Listing, error) {
	var out Listing
	uids, err := names(s.dir)
	if err != nil {
		return out, fmt.Errorf("list records: %w", err)
	}
	listed := make(map[string]bool, len(uids))
	for _, uid := range uids {
		r, err := s.load(filepath.Join(s.dir, uid+suffix), uid)
		listed[uid] = !errors.Is(err, fs.ErrNotExist)
		switch {
		case err == nil:
			out.Records = append(out.Records, r)
		case !listed[uid]:
			// Removed since, or set aside since: then it is found below.
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer), errors.Is(err, ErrUnreadable):
			out.Bad = append(out.Bad, Bad{uid, err})
		default:
			return out, fmt.Errorf("list records: %w", err)
		}
	}
	damaged, err := names(filepath.Join(s.dir, "damaged"))
	if err != nil {
		return out, fmt.Errorf("list damaged records: %w", err)
	}
	for _, uid := range damaged {
		if listed[uid] {
			continue // it was prepared again, or is bad anew
		}
		out.Bad = append(out.Bad, Bad{uid, fmt.Errorf("%w: set aside", ErrDamaged)})
	}
	s.forgetExcept(listed)
	return out, nil
}

// SetAside moves a damaged record out of the way, so that the claim can be
// prepared again and the content can be looked at.
func (s *Store) SetAside(uid string) (string, error) {
	path, err := s.path(uid)
	if err != nil {
		return "", fmt.Errorf("set record aside: %w", err)
	}
	to := s.damagedPath(uid)
	if err := os.Rename(path, to); err != nil {
		return "", fmt.Errorf("set record aside: %w", err)
	}
	return to, nil
}

// IsSetAside tells whether a damaged record of the claim was set aside.
func (s *Store) IsSetAside(uid string) (bool, error) {
	_, err := os.Lstat(s.damagedPath(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (s *Store) damagedPath(uid string) string { return filepath.Join(s.dir, "damaged", uid+suffix) }

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var uids []string
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), suffix)
		if ok && share.UsableUID(uid) && e.Type().IsRegular() {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

func (s *Store) load(path, uid string) (Record, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Record{}, unreadable(err)
	}
	inode, err := inodeOf(info)
	if err != nil {
		return Record{}, err
	}
	s.mu.Lock()
	hit, ok := s.cache[uid]
	s.mu.Unlock()
	if ok && hit.inode == inode && hit.size == info.Size() && hit.modified.Equal(info.ModTime()) {
		return hit.use()
	}
	// Should the file be replaced between the two calls, then the new content
	// is cached for the old inode, and read again the next time.
	young := time.Since(info.ModTime()) < settled
	data, err := os.ReadFile(path)
	if err != nil {
		return Record{}, unreadable(err)
	}
	entry := cached{inode: inode, size: info.Size(), modified: info.ModTime()}
	entry.record, entry.err = Decode(data, uid)
	if entry.err != nil {
		entry.err = fmt.Errorf("read %s: %w", path, entry.err)
	}
	if !young {
		s.mu.Lock()
		s.cache[uid] = entry
		s.mu.Unlock()
	}
	return entry.use()
}

// unreadable marks errors that concern one file and say nothing of others.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, err)
}

// use is the cached record, to keep: the caller may change it.
func (c cached) use() (Record, error) {
	r := c.record
	r.Shares = slices.Clone(r.Shares)
	return r, c.err
}

func (s *Store) forgetExcept(keep map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.cache {
		if !keep[uid] {
			delete(s.cache, uid)
		}
	}
}
