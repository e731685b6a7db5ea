// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"fmt"
	"testing"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

// node of 8 busy cards with 16 tenants each, a fourth of them in gangs of two where that is
// asked for.
func node(gangs bool) (*lease.Scheduler, []lease.Tenant) {
	s := lease.New(lease.Config{})
	var tenants []lease.Tenant
	for i := range 8 * 16 {
		t := tenant(fmt.Sprint("t", i), fmt.Sprint("card", i%8), share.Policies()[i/8%4], 6)
		if gangs && i >= 96 {
			t.Gang = fmt.Sprint("g", i/2)
		}
		s.Put(0, t)
		s.Wants(0, t.Key, true)
		tenants = append(tenants, t)
	}
	return s, tenants
}

// BenchmarkEvent is a tenant that sleeps or wakes, and the decision.
func BenchmarkEvent(b *testing.B) {
	s, tenants := node(false)
	now, i := lease.Time(0), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		now += us
		s.Wants(now, tenants[i%128].Key, i/128%2 == 0)
		decide(s, now)
	}
}

// BenchmarkTurn is the end of turns, which fall together on all cards here, the drained holders and the
// decisions.
func BenchmarkTurn(b *testing.B) {
	for _, gangs := range []bool{false, true} {
		b.Run(fmt.Sprintf("gangs=%v", gangs), func(b *testing.B) {
			s, _ := node(gangs)
			var now lease.Time
			b.ReportAllocs()
			for b.Loop() {
				now = max(decide(s, now), now+us)
			}
		})
	}
}

// decide, and answer for those who were closed.
func decide(s *lease.Scheduler, now lease.Time) lease.Time {
	d := s.Decide(now)
	for _, c := range d.Changes {
		if c.State == lease.Closed {
			s.Drained(now, c.Key)
			d.Next = now
		}
	}
	s.Preemptions()
	return d.Next
}
