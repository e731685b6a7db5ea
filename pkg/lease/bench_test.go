// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"fmt"
	"testing"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// BenchmarkDecide is one event and one decision on a node of busy cards.
func BenchmarkDecide(b *testing.B) {
	for _, gang := range []bool{false, true} {
		b.Run(fmt.Sprintf("16 tenants on each of 8 cards, gangs=%v", gang), func(b *testing.B) {
			s := lease.New(lease.Config{})
			var now lease.Time
			for i := range 8 * 16 {
				t := tenant(fmt.Sprint("t", i), fmt.Sprint("card", i%8), share.Policies()[i/8%4], 6)
				if gang && i >= 96 {
					t.Gang = fmt.Sprint("g", i/2)
				}
				s.Put(now, t)
				s.Wants(now, t.Key, true)
			}
			next := s.Decide(now).Next
			b.ReportAllocs()
			for b.Loop() {
				now = max(next, now+lease.Time(us))
				d := s.Decide(now)
				for _, c := range d.Changes {
					if c.State == lease.Closed {
						s.Drained(now, c.Key)
					}
				}
				next = d.Next
				s.Preemptions()
			}
		})
	}
}
