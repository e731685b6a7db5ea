// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Time is nanoseconds of a monotonic clock. Calls are made in the order of time;
// one with a time before the last one's counts as made at the last one's.
type Time = time.Duration

// Never is when a Decision is to be asked for again that only an event can change.
const Never Time = 1<<63 - 1

// Tenant is a share as the scheduler sees it: one share, on one card.
type Tenant struct {
	Key  share.Key
	Card card.UUID
	// Gang is the same for shares of several cards that are opened together, empty
	// for a share that is alone.
	Gang string

	Policy share.Policy
	Class  share.Class
	// Limits are a guarantee, a ceiling or a weight, as Policy says; Memory is not
	// looked at.
	Limits share.Limits
	// Ceiling of compute under policies that may burst, in percent of the card.
	Ceiling card.Percent
	// Whole: nobody else can be on the card.
	Whole bool
}

// State of a tenant's lease.
type State int

const (
	// Closed: launches wait.
	Closed State = iota
	// Open: launches pass, with a bounded amount of work in flight.
	Open
	// Free: launches pass, nobody has to be told: the tenant is alone on its card
	// and may use all of it.
	Free
)

// Grant is what a tenant is told.
type Grant struct {
	State State
	// Contended, with Open: others wait, so what is not used is to be given back.
	Contended bool
	// Tell, with Open: the card is lent to others meanwhile. The tenant may launch
	// at once and says so (Scheduler.Wants), upon which the others are stopped.
	Tell bool
}

// Change is a tenant's new Grant.
type Change struct {
	Key share.Key
	Grant
}

// Decision is what is to be done now.
type Decision struct {
	// Changes in the order in which they are to be made known: closing before
	// opening.
	Changes []Change
	// Next is when to ask again if nothing happens before, or Never.
	Next Time
}

// Config of a Scheduler. The zero value of a field means its default.
type Config struct {
	// Quantum is how long a lease lasts while others wait, and what a round of
	// all who wait is cut into: 10 ms. Half of it, of tenants with a ceiling, which they
	// may pass by a turn.
	Quantum time.Duration
	// ShortestQuantum and LongestQuantum bound it where it adapts to the number
	// and weights of those who wait: 2 ms and 20 ms.
	ShortestQuantum, LongestQuantum time.Duration
	// Credit is how much time a share can have saved up while it slept: 20 ms.
	Credit time.Duration
	// Hold is the least time that an online share is idle before offline work
	// resumes, LongestHold the most that its own habits make of it: 1 ms and 20 ms.
	Hold, LongestHold time.Duration
	// Least is how long a lease lasts at least, whoever of the same level wakes: 1 ms.
	Least time.Duration
	// Drain is how long a tenant that was closed may have work in flight before the
	// card goes to the next one all the same: 100 ms.
	Drain time.Duration
	// Lead is how long before a closed tenant has drained the next one is opened at most: 100 us.
	Lead time.Duration
}

// Usage of the card by a tenant, in sums since it was put.
type Usage struct {
	// Held is how long the lease was the tenant's, from its opening until nothing was in
	// flight any more or it was given back, and what it was charged with besides, see Charge.
	Held time.Duration
	// Wanted is how long the tenant wanted the card, whether it had it or not, and
	// Throttled how long of that it did not have the lease.
	Wanted, Throttled time.Duration
	// Entitled is what it would have had by its policy, given who else wanted the
	// card at the time: the integral of its rate over the time that it wanted it.
	Entitled time.Duration
	// Preemptions is how often its lease was taken back while it wanted the card.
	Preemptions uint64
}

// TenantState is a tenant as it is now.
type TenantState struct {
	Tenant
	Grant Grant
	Wants bool
	// Draining: closed, and something is in flight still.
	Draining bool
	Withheld bool
	// Rate is the part of the card that it is entitled to at present, 0 to 1: nothing while it does
	// not want the card, or is of the lower level and that may not run.
	Rate float64
	// Balance is what it is owed, or owes where it is negative.
	Balance time.Duration
	Usage   Usage
}

// CardState is a card as it is now.
type CardState struct {
	Card card.UUID
	// Holder has the card, or is empty.
	Holder share.Key
	// Since is when it got it.
	Since Time
	// Quantum that holders get at present.
	Quantum time.Duration
	// Switches counts how often the card went from one tenant to another.
	Switches uint64
	// Time since the card has tenants is Held (the lease was used), Draining (nobody's
	// lease was, and work in flight of closed ones ran on) or Idle.
	Held, Draining, Idle time.Duration
	// Overlap is time of these in which several had work in flight, which the hardware divides among their
	// processes: their Usage.Held add up to Held + Draining.
	Overlap time.Duration
	// Tenants by key.
	Tenants []TenantState
}

// Preempted is one lease that was taken back: who for, and how long it took from when
// the card was wanted until the one who gives way had nothing in flight.
type Preempted struct {
	Key     share.Key
	For     share.Key
	Latency time.Duration
}
