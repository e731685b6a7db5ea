// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	xidDoubleBitECC = 48
	// settle is how long after an XID error the driver's word that a card is
	// well is not yet taken: the event comes before the verdict.
	settle = 30 * time.Second
)

// xidClass says whose an XID error is.
type xidClass int

const (
	xidOfCard xidClass = iota
	xidOfApplication
	xidNotice
)

// classify knows the errors that are not the card's. The source is NVIDIA's Xid
// catalogue (docs.nvidia.com/deploy/xid-errors).
func classify(xid uint64) xidClass {
	switch xid {
	case 8, 11, 13, 31, 43, 45, 68, 109: // the application's fault, or its end
		return xidOfApplication
	case 63, 92, 94, 154: // what stands behind them, if anything, can be queried
		return xidNotice
	default:
		return xidOfCard
	}
}

// evicts tells whether nothing on the card can go on after that error.
func evicts(xid uint64) bool {
	return xid == 79 || xid == 95
}

func xidMessage(xid uint64) string {
	names := map[uint64]string{
		48: "double-bit ECC error", 62: "internal micro-controller halt", 64: "row remapping failed", 74: "NVLink error",
		79: "GPU has fallen off the bus", 95: "uncontained memory error", 119: "GSP does not answer", 120: "GSP error",
	}
	if name, known := names[xid]; known {
		return fmt.Sprintf("Xid %d: %s", xid, name)
	}
	return fmt.Sprintf("Xid %d", xid)
}

// xidMemory is what happened to one card: an XID error is an event, and nothing
// says that it is over.
type xidMemory struct {
	errors map[uint64]struct{}
	// last is when the card was last seen to be ill.
	last time.Time
}

// remember an XID error of a card.
func (s *Source) remember(id card.UUID, xid uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, found := s.xids[id]
	if !found {
		m.errors = map[uint64]struct{}{}
	}
	m.errors[xid] = struct{}{}
	m.last = s.opts.Now()
	s.xids[id] = m
}

// recall gives the faults for past XID errors of a card, and forgets them when
// the card has been well for long enough: shortly where the driver says itself
// that it is well, for XIDHold where it cannot. Callers hold mu.
func (s *Source) recall(id card.UUID, h health) []card.Fault {
	m, found := s.xids[id]
	if !found {
		return nil
	}
	now, hold := s.opts.Now(), s.opts.XIDHold
	if h.told {
		hold = min(hold, settle)
	}
	if len(h.faults) > 0 {
		m.last = now
		s.xids[id] = m
	} else if now.Sub(m.last) >= hold {
		delete(s.xids, id)
		return nil
	}
	var faults []card.Fault
	for _, xid := range slices.Sorted(maps.Keys(m.errors)) {
		faults = append(faults, card.Fault{Kind: FaultXID, Message: xidMessage(xid), Evict: evicts(xid)})
	}
	return faults
}
