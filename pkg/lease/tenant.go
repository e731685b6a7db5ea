// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// tenant with all that is known of it.
type tenant struct {
	Tenant
	board *board
	gang  *gang
	own   jam // where it is in no gang

	// What the policy comes to: parts of the card. floor is guaranteed, weight is for
	// what is left over, ceiling is never passed.
	floor, weight, ceiling float64
	lower                  bool

	wants, withheld bool
	// lingers: it has said that it wants the card no more, and is taken for one who does
	// until then, see gang. Never where it does not linger.
	lingers    Time
	open, free bool
	draining   bool
	told       Grant

	asked Time // when it began to want
	woke  bool // and has not had the card since
	// roused: it had not when its lease began.
	roused bool
	since  Time // when the lease began
	turn   Time // from when the present quantum counts
	shut   Time // when it was closed

	slow      time.Duration // it is to drain, on an average of late
	quick     int           // times in a row it took no longer than quickDrain
	stopped   Preempted     // what becomes of the lease that was taken back
	stoppedAt Time

	// rate is the part of the card that it is entitled to, part the same of what all of
	// its level who want the card are entitled to.
	rate, part float64
	length     time.Duration // of its turns
	// balance is service that it is owed by the others of its level, room is time that
	// its ceiling lets it have the card for. Nanoseconds.
	balance, room float64
	entitled      float64
	// processes that may have something in flight, of which each has one of the hardware's turns where work of several
	// is in flight. charge is what the tenant had in the time that is being accounted for.
	processes int
	charge    time.Duration
	usage     Usage
	gaps      gaps
}

// put what was said of the tenant.
func (t *tenant) put(spec Tenant) {
	t.Tenant = spec
	t.lower = spec.Class == share.Offline
	cores := spec.Limits.Cores
	if t.lower {
		cores = spec.Limits.OfflineCores
	}
	part := fraction(cores)
	most := fraction(spec.Ceiling)
	if most == 0 {
		most = 1
	}
	t.floor, t.weight, t.ceiling = 0, 1, 1
	switch {
	case spec.Policy == share.Fixed && part > 0:
		t.floor, t.weight, t.ceiling = part, 0, part
	case spec.Policy == share.GuaranteedBurst && part > 0:
		t.floor, t.weight, t.ceiling = part, part*100, max(part, most)
	case spec.Policy == share.NativeBurst && part > 0:
		t.weight, t.ceiling = part*100, most
	case spec.Policy == share.GuaranteedBurst || spec.Policy == share.NativeBurst:
		t.ceiling = most
	}
	if t.ceiling == 1 {
		t.room = 0
	}
}

func fraction(p card.Percent) float64 {
	return float64(min(max(p, 0), card.WholeCompute)) / float64(card.WholeCompute)
}

// counts tells whether the card is divided with the tenant in mind.
func (t *tenant) counts() bool { return t.wants && !t.withheld }

// holds tells whether the time that passes is the tenant's.
func (t *tenant) holds() bool {
	if l := t.board.leaver; l != nil && !t.draining {
		return l == t
	}
	return t.draining || (t.open || t.free) && t.wants
}

// roomy tells whether the ceiling lets the tenant begin a turn.
func (t *tenant) roomy() bool { return t.room > -1 }

// roomAt is when the tenant and those of its gang whom it needs are roomy.
func (t *tenant) roomAt(now Time) Time {
	at := now
	if !t.roomy() {
		at += Time(math.Ceil(-t.room / t.ceiling))
	}
	if t.gang == nil {
		return at
	}
	for _, m := range t.gang.members {
		if m.takesPart() && !m.open && !m.roomy() {
			at = max(at, now+Time(math.Ceil(-m.room/m.ceiling)))
		}
	}
	return at
}

// lag is how long ago the tenant should have had what it is owed.
func (t *tenant) lag() float64 {
	if t.gang != nil {
		return t.gang.lag()
	}
	return t.ownLag()
}

func (t *tenant) ownLag() float64 {
	if t.part <= 0 {
		return 0
	}
	if t.gang != nil {
		return t.balance / t.part // the same on all cards
	}
	return min(t.balance/t.part, t.board.longest[level(t.lower)])
}

// ready tells whether the tenant could use the card at once.
func (t *tenant) ready() bool {
	if !t.counts() || t.free {
		return false
	}
	if t.gang != nil {
		return t.gang.ready()
	}
	return t.roomy() || t.own.stuck
}

// urgent tells whether the tenant may end a turn of somebody who is owed less.
func (t *tenant) urgent() bool {
	if t.gang != nil {
		return t.gang.pressing
	}
	return t.woke || t.own.stuck
}

// same lags but for rounding, ns.
const same = 10

// before tells whether the tenant is to have the card rather than another of its
// level.
func (t *tenant) before(o *tenant) bool {
	if a, b := t.stuck(), o.stuck(); a != b {
		return a
	}
	if a, b := t.lag(), o.lag(); math.Abs(a-b) > same {
		return a > b
	}
	if t.draining != o.draining {
		return o.draining // it has just had its turn
	}
	if t.gang != nil && o.gang != nil && t.gang != o.gang {
		return t.gang.name < o.gang.name
	}
	if t.asked != o.asked {
		return t.asked < o.asked
	}
	return t.Key < o.Key
}

// running processes of the tenant, of those who hold the card.
func (t *tenant) running() int {
	if !t.holds() {
		return 0
	}
	return max(t.processes, 1)
}

// credit is what the tenant may save up under its ceiling while others keep it waiting. Kernels of
// theirs may take a while, and its percent is promised beside them too.
func (t *tenant) credit(c *Config) float64 {
	return max(float64(c.Credit), t.ceiling*float64(longestWait))
}

// longestWait for the card that a tenant with a ceiling can make good in full.
const longestWait = time.Second

// account for a time of which the tenant held its charge. service is what the
// tenants of its level got in it, served tells whether that level might run, and idle
// whether nobody used the card.
func (t *tenant) account(d, service time.Duration, served, idle bool, c *Config) {
	if t.wants {
		t.usage.Wanted += d
		t.usage.Held += t.charge
		t.usage.Throttled += d - t.charge
	}
	charge := float64(t.charge)
	if t.ceiling < 1 {
		most := 0.0
		if t.wants {
			most = t.credit(c)
		}
		t.room = max(min(t.room+t.ceiling*float64(d)-charge, most), -mostDebt(t.ceiling))
	}
	if t.counts() {
		t.balance += t.part*float64(service) - charge
		if served {
			t.entitled += t.rate * float64(d)
		}
	}
	if served && idle && t.counts() && t.balance < 0 {
		// Those whom it owes want the card as well, but wait for another one: they keep half of
		// their claim.
		t.balance = min(t.balance+t.part*float64(d)/2, 0)
	}
}

// forgivable debt of the tenant after a time d, in which nobody may have used the card: who
// wants it then has what is guaranteed to it forgiven, half of its part being so already.
func (t *tenant) forgivable(d time.Duration, idle bool) float64 {
	part := t.part
	if t.counts() {
		part = max(0, min(t.floor, part)-part/2)
	}
	if t.counts() && !idle || t.holds() || t.balance >= 0 {
		return 0
	}
	return min(part*float64(d), -t.balance)
}

// renounces is what the tenant's claim is less after a time d in which others forgo the card:
// what it is entitled to in it more than what it is guaranteed.
func (t *tenant) renounces(d time.Duration) float64 {
	if !t.counts() || t.balance <= 0 {
		return 0
	}
	return min(max(0, t.rate-t.floor)*float64(d), t.balance)
}

// mostDebt that a tenant with that part can have: a second, but not less than it pays off in
// 10 s, over which shares are promised to be right, nor more than in 100 s. A
// process that was stopped for an hour with work in flight does not make its share
// wait for days.
func mostDebt(part float64) float64 {
	return max(10*part, min(1, 100*part)) * float64(time.Second)
}
