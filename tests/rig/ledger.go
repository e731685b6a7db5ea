// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// Ledger is a share's ledger, seen as an observer does.
type Ledger struct {
	*wireclient.Client

	share Share
}

// OpenLedger gets the pages of a share from the arbiter that serves it now.
func OpenLedger(ctx context.Context, s Share) (*Ledger, error) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := wireclient.Connect(within, s.Dir, wireclient.Hello(wire.RoleObserver))
	if err != nil {
		return nil, fmt.Errorf("look at the ledger of %s: %w", s.Key, err)
	}
	return &Ledger{client, s}, nil
}

// Charge is what the share's processes hold together, by the ledger.
func (l *Ledger) Charge() uint64 { return l.Ledger.Charge(l.used()) }

// used is how many slots there are to look at. A hostile process may have written
// anything.
func (l *Ledger) used() uint32 {
	return min(max(l.Grant.SlotsUsed.Load(), l.Ledger.SlotsUsed.Load()), wire.MaxSlots)
}

// Limit that the share has at present.
func (l *Ledger) Limit() uint64 { return l.Grant.MemoryLimit.Load() }

// Quiet tells whether nobody is between asking and having.
func (l *Ledger) Quiet() bool {
	for i := range l.used() {
		s := &l.Ledger.Slot[i]
		if s.Pending.Load() != 0 || s.Reserve.Load() != 0 || s.Inflight.Load() != 0 {
			return false
		}
	}
	return true
}

// Attached is how many processes have a slot.
func (l *Ledger) Attached() int {
	n := 0
	for i := range l.used() {
		if l.Ledger.Slot[i].Attached.Load() != 0 {
			n++
		}
	}
	return n
}

// String lists the slots in use.
func (l *Ledger) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "ledger of %s, limit %d:", l.share.Key, l.Limit())
	for i := range l.used() {
		s := &l.Ledger.Slot[i]
		fmt.Fprintf(&text, " slot %d (PID %d) pending %d committed %d reserve %d implicit %d in flight %d;", i, s.HostPID.Load(),
			s.Pending.Load(), s.Committed.Load(), s.Reserve.Load(), s.Implicit.Load(), s.Inflight.Load())
	}
	return text.String()
}
