// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"

	"github.com/tranche-dra/tranche/pkg/share"
)

// Charge tells that a tenant used the card for d while it was not known to hold it. It is charged as if it
// had held it for so long beside the others: those of its level who want the card now are owed that, and so
// is its ceiling, within the bounds of all debts. Where nobody else wants it, nobody is owed anything.
func (s *Scheduler) Charge(now Time, key share.Key, d time.Duration) {
	t := s.find(now, key)
	if t == nil || d <= 0 {
		return
	}
	b := t.board
	b.overlap += d
	t.usage.Held += d
	t.usage.Wanted = max(t.usage.Wanted, t.usage.Held)
	if t.ceiling < 1 {
		t.room = max(t.room-float64(d), -mostDebt(t.ceiling))
	}
	for _, o := range b.tenants {
		if o.lower == t.lower && o.counts() {
			o.balance += o.part * float64(d)
		}
	}
	t.balance -= float64(d)
	b.even(t.lower)
	s.touch(t)
}
