// SPDX-License-Identifier: Apache-2.0

package lease

import (
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
	d := now - b.last
	if d <= 0 {
		return
	}
	b.last = now
	var users, open int
	var service [2]float64
	for _, t := range b.tenants {
		if !t.holds() {
			continue
		}
		users++
		if !t.draining {
			open++
		}
		if t.counts() {
			service[level(t.lower)] += float64(d)
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
	b.overlap += time.Duration(max(users-1, 0)) * d
	for _, t := range b.tenants {
		t.account(d, service[level(t.lower)], !t.lower || b.served, b.config.Credit)
	}
	for _, lower := range []bool{false, true} {
		b.bound(lower)
	}
}

func level(lower bool) int {
	if lower {
		return 1
	}
	return 0
}

// bound what those who want the card are owed and owe. Beyond the credit a claim is
// lost that its owner cannot make good, because of a ceiling or the rest of a gang, and
// beyond mostDebt a debt is forgiven: the others take up the difference.
func (b *board) bound(lower bool) {
	var moved, parts float64
	for _, t := range b.tenants {
		if t.lower != lower || !t.counts() {
			continue
		}
		bounded := t.bounded(b.config)
		t.bound = bounded != t.balance
		if t.bound {
			moved += t.balance - bounded
			t.balance = bounded
		} else {
			parts += t.part
		}
	}
	if moved == 0 || parts == 0 {
		return
	}
	for _, t := range b.tenants {
		if t.lower == lower && t.counts() && !t.bound {
			t.balance += moved * t.part / parts
		}
	}
}

// bounded is the tenant's balance within its bounds.
func (t *tenant) bounded(c *Config) float64 {
	balance := max(t.balance, -mostDebt(t.part))
	if t.ceiling < 1 || t.gang != nil {
		balance = min(balance, float64(c.Credit))
	}
	return balance
}

// even the balances of those who want the card, so that what some are owed is what others
// owe. keep is left as it is: it has just come, with what it had when it
// left.
func (b *board) even(lower bool, keep *tenant) {
	var owed, parts float64
	for _, t := range b.tenants {
		if t.lower == lower && t.counts() {
			owed += t.balance
			if t != keep {
				parts += t.part
			}
		}
	}
	if parts <= 0 {
		if keep != nil && keep.lower == lower && keep.counts() {
			keep.balance = 0 // nobody is there to owe it
		}
		return
	}
	for _, t := range b.tenants {
		if t.lower == lower && t.counts() && t != keep {
			t.balance -= owed * t.part / parts
		}
	}
}

// rerate the tenants: who wants the card has changed, or what they are entitled to.
// by has changed its mind, if it is not nil.
func (b *board) rerate(by *tenant) {
	for _, lower := range []bool{false, true} {
		n, sum, least := b.rates(lower)
		if n == 0 {
			continue
		}
		round := b.round(n, least)
		var turns time.Duration
		for _, t := range b.tenants {
			if t.lower == lower && t.counts() {
				t.part = t.rate / sum
				t.length = time.Duration(t.rate * float64(round))
				t.length = min(max(t.length, b.config.ShortestQuantum), b.config.LongestQuantum)
				turns += t.length
			}
		}
		b.even(lower, by)
		if !lower || !b.wanted(false) {
			b.quantum = turns / time.Duration(n)
		}
	}
	if by != nil && !by.counts() {
		by.balance = min(by.balance, float64(b.config.Credit))
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

// round is in what time each of n tenants has a turn, the one with the least part
// having `least` of it.
func (b *board) round(n int, least float64) time.Duration {
	round := min(time.Duration(n)*b.config.Quantum, b.config.LongestQuantum)
	return max(round, time.Duration(float64(b.config.ShortestQuantum)/least))
}

// turnOf a tenant lasts so long.
func (b *board) turnOf(t *tenant) time.Duration {
	if t.gang != nil && t.gang.unwind {
		return b.config.ShortestQuantum
	}
	return t.length
}
