// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

const (
	rosterSuffix         = ".roster"
	rosterMagic   uint64 = 0x3152545352544354 // "TCTRSTR1"
	rosterVersion uint32 = 1
)

// rosterWords is the content of a roster: who is attached to a share. It is
// written by storing words, each of which is there whatever happens to this
// process right after.
type rosterWords struct {
	magic   atomic.Uint64 // stored last
	version uint32
	slots   uint32
	boot    [40]byte
	// The ledger, zero before there is one.
	ledgerDev, ledgerIno atomic.Uint64
	_                    [4096 - 72]byte
	entry                [wire.MaxSlots]rosterEntry
}

// rosterEntry is the attachment of one slot.
type rosterEntry struct {
	pid         atomic.Int64
	started     atomic.Uint64
	code, stack atomic.Uint64
	nonce       atomic.Uint64 // stored last, zeroed first; zero: the slot is free
	// kept in bytes, where the slot has no process.
	kept atomic.Uint64
	_    [2]uint64
}

const rosterSize = int(unsafe.Sizeof(rosterWords{}))

// roster of one share.
type roster struct {
	path   string
	memory []byte
	words  *rosterWords
	// found tells whether an arbiter of this boot has left it.
	found bool
}

// openRoster opens the roster of a share. One that is of another boot, or is
// damaged, or of another version, is made anew: who was there is not known then.
func openRoster(dir string, key share.Key, boot string) (_ *roster, err error) {
	path := filepath.Join(dir, string(key)+rosterSuffix)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open roster: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open roster: %w", err)
	}
	if info.Size() != int64(rosterSize) {
		if err := errors.Join(file.Truncate(0), file.Truncate(int64(rosterSize))); err != nil {
			return nil, fmt.Errorf("make roster: %w", err)
		}
	}
	// A mapping of a file whose blocks are missing ends the process when the file
	// system is full.
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(rosterSize)); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("make roster: %w", err)
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, rosterSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map roster: %w", err)
	}
	r := &roster{path: path, memory: memory}
	r.words = (*rosterWords)(unsafe.Pointer(unsafe.SliceData(memory))) //nolint:gosec // the mapping is as large as the structure, and page-aligned
	w := r.words
	r.found = w.magic.Load() == rosterMagic && w.version == rosterVersion && w.slots == wire.MaxSlots && wire.Text(w.boot[:]) == boot
	if !r.found {
		r.begin(boot)
	}
	return r, nil
}

func (r *roster) begin(boot string) {
	w := r.words
	w.magic.Store(0)
	clear(r.memory)
	w.version, w.slots = rosterVersion, wire.MaxSlots
	copy(w.boot[:len(w.boot)-1], boot)
	w.magic.Store(rosterMagic)
}

func (r *roster) ledger() fileID {
	return fileID{r.words.ledgerDev.Load(), r.words.ledgerIno.Load()}
}

func (r *roster) setLedger(id fileID) {
	r.words.ledgerIno.Store(0)
	r.words.ledgerDev.Store(id.dev)
	r.words.ledgerIno.Store(id.ino)
}

// enter notes who has a slot.
func (r *roster) enter(slot uint32, p process, nonce uint64) {
	e := &r.words.entry[slot]
	e.nonce.Store(0)
	e.kept.Store(0)
	e.pid.Store(int64(p.pid))
	e.started.Store(p.started)
	e.code.Store(p.image.code)
	e.stack.Store(p.image.stack)
	e.nonce.Store(nonce)
}

// keep notes that the slot has what is kept of processes that have ended. Who had it
// is noted until then.
func (r *roster) keep(slot uint32, nonce, bytes uint64) {
	e := &r.words.entry[slot]
	e.kept.Store(bytes)
	e.pid.Store(0)
	e.nonce.Store(nonce)
}

// leave notes that the slot is free.
func (r *roster) leave(slot uint32) {
	e := &r.words.entry[slot]
	e.nonce.Store(0)
	e.kept.Store(0)
	e.pid.Store(0)
	e.started.Store(0)
	e.code.Store(0)
	e.stack.Store(0)
}

// noted is one attachment that the roster knows. Its process has no pidfd; one
// without a number is no process, but what is kept.
type noted struct {
	slot  uint32
	nonce uint64
	kept  uint64
	process
}

func (r *roster) all() []noted {
	var all []noted
	for i := range r.words.entry {
		e := &r.words.entry[i]
		if nonce := e.nonce.Load(); nonce != 0 {
			all = append(all, noted{uint32(i), nonce, e.kept.Load(), process{
				pid: int(e.pid.Load()), started: e.started.Load(), image: image{e.code.Load(), e.stack.Load()},
			}})
		}
	}
	return all
}

// close lets go of the roster, and removes it when its share has ended.
func (r *roster) close(ended bool) error {
	_ = unix.Munmap(r.memory) // it is a mapping
	if !ended {
		return nil
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove roster: %w", err)
	}
	return nil
}

// removeRosters removes those of shares that ended while no arbiter ran.
func removeRosters(dir string, lives func(share.Key) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list rosters: %w", err)
	}
	for _, e := range entries {
		key, is := strings.CutSuffix(e.Name(), rosterSuffix)
		if !is || lives(share.Key(key)) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove roster: %w", err)
		}
	}
	return nil
}
