// SPDX-License-Identifier: Apache-2.0

package arbiter

import "github.com/tranche-dra/tranche/pkg/wire"

// label makes memory a ledger of this version.
func label(l *wire.Ledger) {
	l.Magic, l.Version, l.Slots = wire.LedgerMagic, wire.ContractVersion, wire.MaxSlots
}

// mend takes out of the ledger what a process of the share may have written where
// nobody's amounts are: over the head, without which no process would take the
// page, and into free slots, which are charged if they are not zero. So a share
// is as good as new once those are gone who harmed it. Slots behind the last one
// that is taken are cleared when they are handed out: to touch them all would
// cost their memory. The caller has card.mu.
func (s *served) mend() {
	label(s.ledger.words)
	for i, taken := range s.attached {
		if taken == nil && !s.kept.has(i) {
			s.ledger.words.Slot[i].Clear()
		}
	}
}
