// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// Usage tells what processes hold of a card, by their numbers in this PID
// namespace. A process that holds nothing may be left out; one that is there
// twice holds the sum. A call may take long, or for ever where a driver hangs;
// calls for one card do not overlap.
type Usage interface {
	Processes(ctx context.Context, id card.UUID) ([]card.ProcessMemory, error)
}

// meter reads one card, for all who want to know at once: whoever asks while a
// reading is under way gets the next one, which begins after he asked.
type meter struct {
	id    card.UUID
	usage Usage
	ctx   context.Context // of the arbiter: readings outlive those who asked
	wait  *sync.WaitGroup

	// wanted is set while it is of interest what the card holds for nobody, which
	// takes longer.
	wanted atomic.Bool

	mu      sync.Mutex
	next    *reading // asked for and not begun
	working bool
}

// reading is the result of one look at a card, complete once done is closed.
type reading struct {
	done chan struct{}
	// used in bytes, by PID.
	used map[int]uint64
	// kept in bytes is what the card held for nobody, at most, a moment before;
	// NoLimit where that was not wanted or is not known. exact: whatever processes did.
	kept  uint64
	exact bool
	err   error
}

// restFactor keeps a flood of requests from occupying a processor: after a
// reading the meter rests for that many times as long as it took, though not
// for longer than maxRest.
const (
	restFactor = 2
	maxRest    = 5 * time.Millisecond
)

// read gives a reading that begins after the call.
func (m *meter) read(ctx context.Context) (*reading, error) {
	m.mu.Lock()
	if m.next == nil {
		m.next = &reading{done: make(chan struct{})}
	}
	r := m.next
	if !m.working {
		m.working = true
		m.wait.Go(m.work)
	}
	m.mu.Unlock()
	select {
	case <-r.done:
		return r, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read what processes hold of card %s: %w", m.id, context.Cause(ctx))
	}
}

// work reads as long as somebody asks.
func (m *meter) work() {
	for {
		m.mu.Lock()
		r := m.next
		m.next = nil
		m.working = r != nil
		m.mu.Unlock()
		if r == nil {
			return
		}
		began := time.Now()
		r.kept, r.exact = m.kept()
		r.used, r.err = m.once()
		close(r.done)
		pause(m.ctx, min(restFactor*time.Since(began), maxRest))
	}
}

// kept comes before the reading of processes: what passes to one of them in between
// is then seen twice, and not missed.
func (m *meter) kept() (bytes uint64, exact bool) {
	keeper, ok := m.usage.(Keeper)
	if !ok || !m.wanted.Load() {
		return wire.NoLimit, false
	}
	bytes, exact, err := keeper.Kept(m.ctx, m.id)
	if err != nil {
		klog.FromContext(m.ctx).V(2).Info("Cannot tell what a card holds for nobody", "card", m.id, "reason", err.Error())
		return wire.NoLimit, false
	}
	return bytes, exact
}

func (m *meter) once() (map[int]uint64, error) {
	processes, err := m.usage.Processes(m.ctx, m.id)
	if err != nil {
		return nil, fmt.Errorf("read what processes hold of card %s: %w", m.id, err)
	}
	used := make(map[int]uint64, len(processes))
	for _, p := range processes {
		used[p.PID] += p.Bytes
	}
	return used, nil
}

// pause waits for a time or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
