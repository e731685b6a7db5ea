// SPDX-License-Identifier: Apache-2.0

package lease

import "time"

// That a tenant which launches little at a time has drained takes longer to say than to do. After so
// many such drains in a row it is not waited for.
const (
	quickDrain  = 200 * time.Microsecond
	quickDrains = 4
)

// drained: the tenant took so long to drain.
func (t *tenant) drained(took time.Duration) {
	if t.quick++; took > quickDrain {
		t.quick = 0
	}
}

// trusted to have drained as soon as it is closed.
func (t *tenant) trusted() bool { return t.quick >= quickDrains && t.gang == nil }

// trusts tells whether the tenant does not wait until another one has drained.
func (t *tenant) trusts(o *tenant) bool { return o.trusted() && t.gang == nil && t.lower == o.lower }

// distrust who was not waited for, and has not drained by now. The holder is closed again, and waits as if
// it had not been opened: it is not known to use the card beside work that goes on, nor how much.
func (s *Scheduler) distrust(b *board, now Time) {
	for _, t := range b.tenants {
		if !t.draining || !t.trusted() || now < t.shut+quickDrain {
			continue
		}
		t.quick = 0
		if h := b.holder; h != nil && h.gang == nil && h.wants && !b.clear(h, now) {
			s.shut(h, nil, now)
			h.woke = h.roused
		}
	}
}
