// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"fmt"
	"maps"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Truth is what is true on a card at one moment.
type Truth struct {
	// Total is the card's memory and Driver what the driver holds of it, in bytes.
	Total, Driver uint64
	// Used is what processes hold, dead ones too until somebody clears up after
	// them; UsedMax the most that it ever was. Neither has Driver in it.
	Used, UsedMax uint64
	// Refused counts allocations that did not fit.
	Refused uint64
	// Runs counts the runs that ended so far.
	Runs uint64
	// Slots are the processes that hold something or did, by their number. A
	// process that died stays until its slot is cleared.
	Slots []Slot
}

// Slot is one process that uses the card.
type Slot struct {
	Number int
	// Alive tells whether the process still is. PID is its number in this
	// process's PID namespace, 0 where it has none there; NSPID is how it sees
	// itself.
	Alive      bool
	PID, NSPID int
	// Held are the bytes that it holds, by kind; HeldMax the most that it held
	// at once.
	Held    [kinds]uint64
	HeldMax uint64
	// Busy is the time that it had on the card.
	Busy     time.Duration
	Launches uint64
	// Started and LastBusy are times of CLOCK_MONOTONIC.
	Started, LastBusy time.Duration
	// Name of the program.
	Name string
}

// Total is all that the process holds, in bytes.
func (s Slot) Total() uint64 {
	sum := uint64(0)
	for _, n := range s.Held {
		sum += n
	}
	return sum
}

// Live is what living processes hold, in bytes.
func (t Truth) Live() uint64 {
	sum := uint64(0)
	for _, s := range t.Slots {
		if s.Alive {
			sum += s.Total()
		}
	}
	return sum
}

// ByPID finds the living process with that number in this PID namespace.
func (t Truth) ByPID(pid int) (Slot, bool) {
	for _, s := range t.Slots {
		if s.Alive && s.PID == pid {
			return s, true
		}
	}
	return Slot{}, false
}

// Truth reads the card. Numbers of one slot may be of slightly different moments
// while its process changes them; Watch looks at several slots at one moment.
func (c *Card) Truth() (Truth, error) {
	owners, err := c.owners()
	if err != nil {
		return Truth{}, err
	}
	return c.read(owners), nil
}

func (c *Card) read(owners map[int]int) Truth {
	s := c.shared
	t := Truth{
		Total: s.facts.memoryTotal, Driver: s.facts.memoryDriver,
		Used: atomic.LoadUint64(&s.used), UsedMax: atomic.LoadUint64(&s.usedMax),
		Refused: atomic.LoadUint64(&s.refused), Runs: atomic.LoadUint64(&s.logNext),
	}
	for i := range s.slot {
		if pid, alive := owners[i]; alive || atomic.LoadUint32(&s.slot[i].taken) != 0 {
			t.Slots = append(t.Slots, c.slot(i, pid, alive))
		}
	}
	return t
}

func (c *Card) slot(number, pid int, alive bool) Slot {
	l := &c.shared.slot[number]
	s := Slot{
		Number: number, Alive: alive, PID: pid, NSPID: int(atomic.LoadInt32(&l.nsPID)),
		HeldMax: atomic.LoadUint64(&l.heldMax), Busy: duration(&l.busy), Launches: atomic.LoadUint64(&l.launches),
		Started: duration(&l.started), LastBusy: duration(&l.lastBusy), Name: text(l.name[:]),
	}
	for k := range s.Held {
		s.Held[k] = atomic.LoadUint64(&l.held[k])
	}
	return s
}

func duration(word *uint64) time.Duration {
	return time.Duration(atomic.LoadUint64(word)) //nolint:gosec // nanoseconds since boot
}

// owners gives the PIDs of the living processes by slot, from the locks. A slot
// that somebody clears at the moment belongs to a process that is dead.
func (c *Card) owners() (map[int]int, error) {
	owners, err := locks(c.pids, 0, MaxSlots)
	if err != nil {
		return nil, fmt.Errorf("read who uses simulated card %s: %w", c.path, err)
	}
	maps.DeleteFunc(owners, func(_, pid int) bool { return pid < 0 })
	return owners, nil
}

// locks tells which bytes of a file from first on are locked, by their distance
// from first, and by which process: -1 where a descriptor has the lock.
func locks(file *os.File, first, count int64) (map[int]int, error) {
	locked := map[int]int{}
	type span struct{ from, to int64 }
	for spans := []span{{first, first + count}}; len(spans) > 0; {
		asked := spans[len(spans)-1]
		spans = spans[:len(spans)-1]
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: asked.from, Len: asked.to - asked.from}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			return nil, err
		}
		if lock.Type == unix.F_UNLCK {
			continue
		}
		// The kernel names any one lock of the span, and neighbouring ones of
		// one process as one.
		found := span{max(lock.Start, asked.from), asked.to}
		if lock.Len != 0 {
			found.to = min(lock.Start+lock.Len, asked.to)
		}
		for i := found.from; i < found.to; i++ {
			locked[int(i-first)] = int(lock.Pid)
		}
		for _, rest := range []span{{asked.from, found.from}, {found.to, asked.to}} {
			if rest.from < rest.to {
				spans = append(spans, rest)
			}
		}
	}
	return locked, nil
}

// Kept is what the card holds for no living process and will not give to
// others, in bytes: memory whose maker has ended, and of which there is a
// descriptor, or which a living process has imported without being counted yet.
func (c *Card) Kept() (uint64, error) {
	o := &c.shared.objects
	count := min(atomic.LoadUint64(&o.objects), maxObjects)
	if count == 0 {
		return 0, nil
	}
	owners, err := c.owners()
	if err != nil {
		return 0, err
	}
	described, err := locks(c.file, descriptorLock, int64(count))
	if err != nil {
		return 0, fmt.Errorf("read what descriptors keep of simulated card %s: %w", c.path, err)
	}
	keeps := map[uint32]bool{}
	for i := range uint32(count) {
		if _, ok := described[int(i)]; atomic.LoadUint64(&o.object[i].id) != 0 && (ok || o.object[i].isHeld(owners)) {
			keeps[i] = true
		}
	}
	bytes := uint64(0)
	for i := range o.tag {
		if len(keeps) == 0 {
			break
		}
		number := atomic.LoadUint32(&o.tag[i]) >> tagBits
		owner := int(atomic.LoadUint32(&c.shared.frame[i/2]) >> (16 * (i % 2)) & 0xffff)
		if number == 0 || owner == 0 || !keeps[number-1] {
			continue
		}
		if _, alive := owners[owner-1]; !alive {
			bytes += Frame
		}
	}
	return bytes, nil
}

// isHeld tells whether a living process uses the object.
func (o *objectLayout) isHeld(owners map[int]int) bool {
	for slot := range owners {
		if atomic.LoadUint64(&o.holders[slot/64])>>(slot%64)&1 != 0 {
			return true
		}
	}
	return false
}

// What a Run is of.
const (
	// Kernels: the process had the card for itself.
	Kernels uint32 = 1
	// Copies, and fills: they run beside kernels, also those of other processes.
	Copies uint32 = 2
)

// Run is one stretch of time that a process used the card. Times are
// of CLOCK_MONOTONIC.
type Run struct {
	Index      uint64
	Start, End time.Duration
	Slot       int
	// What is Kernels or Copies.
	What uint32
}

// Runs gives the runs from the index since on, as far as the card remembers
// them: the last 65536. Those of one process and kind are in the order of time, others
// need not be. A run that is just being written is left out.
func (c *Card) Runs(since uint64) []Run {
	next := atomic.LoadUint64(&c.shared.logNext)
	first := since
	if next > logSize {
		first = max(first, next-logSize)
	}
	var runs []Run
	for i := first; i < next; i++ {
		if run, written := c.run(i); written {
			runs = append(runs, run)
		}
	}
	return runs
}

// run reads one entry of the log. Its last word says which run it is, and is
// written last.
func (c *Card) run(i uint64) (Run, bool) {
	l := &c.shared.log[i%logSize]
	what := atomic.LoadUint32(&l.what)
	run := Run{i, duration(&l.start), duration(&l.end), int(atomic.LoadUint32(&l.slot)), what & 0xff}
	fits := run.What != 0 && uint64(what>>8) == i/logSize&0xffffff
	return run, fits && atomic.LoadUint32(&l.what) == what
}

// Audit tells whether the card's books agree with each other: the frames of each
// process with what it says it holds, and all of them with Used. It is for
// moments when nothing is allocated or freed.
func (c *Card) Audit() error {
	var bySlot [MaxSlots + 1]uint64
	for i := range c.shared.frame {
		word := atomic.LoadUint32(&c.shared.frame[i])
		for _, owner := range []uint32{word & 0xffff, word >> 16} {
			if owner > MaxSlots {
				return fmt.Errorf("a frame belongs to slot %d, which cannot be", int(owner)-1)
			}
			bySlot[owner] += Frame
		}
	}
	used := uint64(0)
	for i := range c.shared.slot {
		held := c.slot(i, 0, false).Total()
		if bySlot[i+1] != held {
			return fmt.Errorf("slot %d says that it holds %d bytes, its frames are %d", i, held, bySlot[i+1])
		}
		used += held
	}
	if total := atomic.LoadUint64(&c.shared.used); total != used {
		return fmt.Errorf("the card says that %d bytes are used, its slots hold %d", total, used)
	}
	return nil
}
