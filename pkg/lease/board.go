// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// board is what is known of one card.
type board struct {
	card    card.UUID
	config  *Config
	tenants []*tenant // by key

	holder   *tenant // open, and not free
	previous share.Key
	switches uint64
	quantum  time.Duration
	// longest lag that counts on each level: that of a tenant with a ceiling whose claim is
	// all but as great as it may be. Beyond it all have their turns one after another: work that
	// never ends owes others more and more, and those with ceilings would wait behind them for ever.
	longest [2]float64

	// leaver has what is left of the last lease, until left: the one after it is open.
	leaver *tenant
	left   Time

	last   Time // accounted for until
	since  Time // when the card changed hands, or was opened again
	due    Time // to be looked at again
	look   bool // in this pass of a decision
	seen   bool // in this decision
	served bool // whether the lower level may run

	held, draining, idle, overlap time.Duration
}

// account for the time since the last call.
func (b *board) account(now Time) {
	if b.leaver != nil && now >= b.left {
		b.pass(b.left)
		b.leaver = nil
	}
	b.pass(now)
}

// pass the time in which nobody leaves, or somebody does.
func (b *board) pass(now Time) {
	d := now - b.last
	if d <= 0 {
		return
	}
	b.last = now
	var users, open, processes int
	for _, t := range b.tenants {
		if !t.holds() {
			continue
		}
		users++
		processes += t.running()
		if !t.draining && t != b.leaver {
			open++
		}
	}
	var service [2]time.Duration
	ran, charged := 0, time.Duration(0)
	for _, t := range b.tenants {
		t.charge = 0
		if users > 0 {
			// The hardware gives each process that uses the card its turns. Together that is d.
			ran += t.running()
			t.charge = d*time.Duration(ran)/time.Duration(processes) - charged
			charged += t.charge
		}
		if t.counts() {
			service[level(t.lower)] += t.charge
		}
	}
	switch {
	case open > 0:
		b.held += d
	case users > 0:
		b.draining += d
	default:
		b.idle += d
	}
	if users > 1 {
		b.overlap += d
	}
	for _, t := range b.tenants {
		t.account(d, service[level(t.lower)], !t.lower || b.served, users == 0, b.config)
	}
	for _, lower := range []bool{false, true} {
		if !lower || b.served {
			b.forgive(lower, d, users == 0)
		}
		b.even(lower)
	}
}

func level(lower bool) int {
	if lower {
		return 1
	}
	return 0
}

// forgive debts of those who sleep, or wait while nobody uses the card. Those whom it is owed to
// are owed that no more: as much as they are entitled to more than what they are guaranteed,
// which is what the debtors leave them.
func (b *board) forgive(lower bool, d time.Duration, idle bool) {
	var debts, claims float64
	for _, t := range b.tenants {
		if t.lower == lower {
			debts += t.forgivable(d, idle)
			claims += t.renounces(d)
		}
	}
	if debts == 0 || claims == 0 {
		return
	}
	most := min(debts, claims)
	for _, t := range b.tenants {
		if t.lower == lower {
			t.balance += t.forgivable(d, idle)*most/debts - t.renounces(d)*most/claims
		}
	}
}

// even out the balances of a level: brought within their bounds, they add up to nothing. What
// one cannot take others owe no more, or are owed no more.
func (b *board) even(lower bool) {
	var sum float64
	for _, t := range b.tenants {
		if t.lower == lower {
			t.balance = t.bounded(b.config)
			sum += t.balance
		}
	}
	b.shrink(lower, sum)
}

// shrink claims, or debts, by the sum of all balances.
func (b *board) shrink(lower bool, sum float64) {
	var all float64
	for _, t := range b.tenants {
		if t.lower == lower && t.balance*sum > 0 {
			all += t.balance
		}
	}
	if all == 0 {
		return
	}
	left := max(0, 1-sum/all)
	for _, t := range b.tenants {
		if t.lower == lower && t.balance*sum > 0 {
			t.balance *= left
		}
	}
}

// claims of a tenant with a ceiling that wants the card are bounded by so many credits.
const claims = 3

// bounded is the tenant's balance within its bounds: a debt is bounded for all, and a claim
// for those who sleep, or may be kept from making it good by the rest of a gang; less so
// by a ceiling, whose room is bounded itself.
func (t *tenant) bounded(c *Config) float64 {
	balance := max(t.balance, -mostDebt(t.part))
	switch {
	case t.counts() && t.gang != nil:
		return min(balance, max(float64(c.Credit), t.part*float64(2*t.board.lap(t))))
	case !t.counts():
		return min(balance, float64(c.Credit))
	case t.ceiling < 1:
		return min(balance, claims*t.credit(c))
	}
	return balance
}

// rerate the tenants: who wants the card has changed, or what they are entitled to.
func (b *board) rerate() {
	for _, lower := range []bool{false, true} {
		n, sum := b.rates(lower)
		longest := &b.longest[level(lower)]
		*longest = math.Inf(1)
		if n == 0 {
			continue
		}
		var turns time.Duration
		for _, t := range b.tenants {
			if t.lower != lower || !t.counts() {
				continue
			}
			t.part = t.rate / sum
			if t.gang == nil && t.ceiling < 1 {
				*longest = min(*longest, (claims-1)*t.credit(b.config)/t.part)
			}
			t.length = time.Duration(t.rate * float64(b.round(t, n)))
			t.length = min(max(t.length, b.config.ShortestQuantum), b.config.LongestQuantum)
			turns += t.length
		}
		if !lower || !b.wanted(false) {
			b.quantum = turns / time.Duration(n)
		}
	}
}

// round of turns, one of which is that tenant's, while n want the card.
func (b *board) round(t *tenant, n int) time.Duration {
	quantum := b.config.Quantum
	if t.ceiling < 1 {
		quantum /= 2
	}
	return min(time.Duration(n)*quantum, b.config.LongestQuantum)
}

// gone: nothing is left of the tenant's last lease.
func (b *board) gone(t *tenant) {
	if b.leaver == t {
		b.leaver = nil
	}
}

// wanted tells whether anybody of a level wants the card.
func (b *board) wanted(lower bool) bool {
	for _, t := range b.tenants {
		if t.lower == lower && t.counts() {
			return true
		}
	}
	return false
}

// turnOf a tenant lasts so long. Those of gangs are longer: what cards lose until a gang has all
// of them does not depend on how long it has them then.
func (b *board) turnOf(t *tenant) time.Duration {
	if t.jam().unwind {
		return b.config.ShortestQuantum
	}
	if t.gang != nil && t.gang.together() {
		return max(t.length, min(time.Duration(2*t.rate*float64(b.config.LongestQuantum)), b.config.LongestQuantum))
	}
	return t.length
}
