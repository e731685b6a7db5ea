// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tranche-dra/tranche/cdi"
)

// Store finds the versions that are installed in a root. It is safe for
// concurrent use.
type Store struct {
	root, source string

	mu    sync.Mutex
	own   Digest          // guarded by mu; empty until it is known
	sound map[Digest]bool // guarded by mu; whose content was compared
	held  *os.File        // guarded by mu; its own version's directory, locked
}

// NewStore finds versions in root; its own is the one in the directory source.
// It does no I/O.
func NewStore(root, source string) *Store {
	return &Store{root: root, source: source, sound: map[Digest]bool{}}
}

// Current is the version that comes with this process, which claims that have
// none yet get. The error wraps ErrNotInstalled where it is not in the root.
func (s *Store) Current() (Digest, error) {
	own, err := s.digest()
	if err != nil {
		return "", err
	}
	_, err = s.Find(own)
	return own, err
}

// digest is computed once: what a process brings along does not change.
func (s *Store) digest() (Digest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != "" {
		return s.own, nil
	}
	own, err := Of(s.source)
	if err != nil {
		return "", fmt.Errorf("find this driver's own runtime: %w (--runtime-source says where it is)", err)
	}
	s.own = own
	return own, nil
}

// Find is the directory of a version, whose content is compared with its digest
// the first time. The error wraps ErrNotInstalled or ErrDamaged.
func (s *Store) Find(d Digest) (cdi.Runtime, error) {
	runtime, err := s.place(d)
	if err != nil {
		return cdi.Runtime{}, err
	}
	for _, name := range files() {
		if _, err := os.Stat(filepath.Join(runtime.Dir, name)); err != nil {
			return cdi.Runtime{}, s.missing(d, err)
		}
	}
	s.mu.Lock()
	sound := s.sound[d]
	s.mu.Unlock()
	if sound {
		return runtime, nil
	}
	return runtime, s.Verify(d)
}

// Verify compares the content of a version with its digest.
func (s *Store) Verify(d Digest) error {
	runtime, err := s.place(d)
	if err != nil {
		return err
	}
	found, err := Of(runtime.Dir)
	if err != nil {
		return s.missing(d, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sound[d] = found == d
	if found != d {
		return fmt.Errorf("check the sharing runtime in %s: %w: it has %s", runtime.Dir, ErrDamaged, found)
	}
	return nil
}

// place is where a version is, or would be.
func (s *Store) place(d Digest) (cdi.Runtime, error) {
	name, err := d.dir()
	if err != nil {
		return cdi.Runtime{}, fmt.Errorf("find the sharing runtime: %w", err)
	}
	return cdi.Runtime{Dir: filepath.Join(s.root, name)}, nil
}

func (s *Store) missing(d Digest, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the sharing runtime: %w", err)
	}
	return fmt.Errorf("%w in %s (%s): run tranche-node install-runtime --from %s --to %s, as the DaemonSet's init container does",
		ErrNotInstalled, s.root, d, s.source, s.root)
}
