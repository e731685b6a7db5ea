// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Reap clears the slots that dead processes left, and returns how many there
// were. The simulated driver does the same when it looks for room; a node needs
// nobody who calls this.
func (c *Card) Reap() (int, error) {
	if !c.writable {
		return 0, fmt.Errorf("clear dead slots of simulated card %s: it is open for reading only", c.path)
	}
	c.reaping.Lock()
	defer c.reaping.Unlock()
	cleared := 0
	for i := range c.shared.slot {
		if atomic.LoadUint32(&c.shared.slot[i].taken) == 0 {
			continue
		}
		dead, err := c.lock(i)
		if err != nil {
			return cleared, fmt.Errorf("clear slot %d of simulated card %s: %w", i, c.path, err)
		}
		if !dead {
			continue
		}
		if atomic.LoadUint32(&c.shared.slot[i].taken) != 0 {
			c.clear(i)
			cleared++
		}
		if err := c.unlock(i); err != nil {
			return cleared, fmt.Errorf("clear slot %d of simulated card %s: %w", i, c.path, err)
		}
	}
	return cleared, nil
}

// lock tries to get the lock of a slot. It is an open file description lock, so
// that it is nobody's who closes another descriptor of the file.
func (c *Card) lock(slot int) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(slot), Len: 1}
	err := unix.FcntlFlock(c.pids.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func (c *Card) unlock(slot int) error {
	lock := unix.Flock_t{Type: unix.F_UNLCK, Start: int64(slot), Len: 1}
	return unix.FcntlFlock(c.pids.Fd(), unix.F_OFD_SETLK, &lock)
}

// clear a slot whose lock is held: frames, then the slot. A process that dies in
// between leaves a slot that is cleared again.
func (c *Card) clear(slot int) {
	s := c.shared
	owner := uint32(slot) + 1 //nolint:gosec // at most 1024
	atomic.AddUint64(&s.changes, 1)
	for i := range s.frame {
		for _, shift := range []uint{0, 16} {
			c.release(&s.frame[i], shift, owner)
		}
	}
	l := &s.slot[slot]
	for k := range l.held {
		atomic.StoreUint64(&l.held[k], 0)
	}
	atomic.AddUint64(&s.changes, 1)
	for _, word := range []*uint64{&l.heldMax, &l.busy, &l.launches, &l.started, &l.lastBusy} {
		atomic.StoreUint64(word, 0)
	}
	atomic.StoreUint32(&l.taken, 0)
}

// release takes a frame from its owner. The other half of the word may change
// meanwhile.
func (c *Card) release(word *uint32, shift uint, owner uint32) {
	for {
		old := atomic.LoadUint32(word)
		if old>>shift&0xffff != owner {
			return
		}
		if atomic.CompareAndSwapUint32(word, old, old&^(0xffff<<shift)) {
			atomic.AddUint64(&c.shared.used, ^uint64(Frame-1))
			return
		}
	}
}
