// SPDX-License-Identifier: Apache-2.0

package lease

import "time"

// State of all cards, in the order of their UUIDs.
func (s *Scheduler) State(now Time) []CardState {
	now = s.at(now)
	states := make([]CardState, 0, len(s.boards))
	for _, b := range s.boards {
		b.account(now)
		states = append(states, b.state())
	}
	return states
}

func (b *board) state() CardState {
	state := CardState{
		Card: b.card, Since: b.since, Quantum: b.quantum, Switches: b.switches,
		Held: b.held, Draining: b.draining, Idle: b.idle, Overlap: b.overlap,
		Tenants: make([]TenantState, 0, len(b.tenants)),
	}
	if b.holder != nil {
		state.Holder = b.holder.Key
	}
	for _, t := range b.tenants {
		if t.free {
			state.Holder = t.Key
		}
		state.Tenants = append(state.Tenants, t.state())
	}
	return state
}

func (t *tenant) state() TenantState {
	state := TenantState{
		Tenant: t.Tenant, Grant: t.told, Wants: t.wants, Draining: t.draining, Withheld: t.withheld,
		Balance: time.Duration(t.balance), Usage: t.usage,
	}
	if t.counts() && (!t.lower || t.board.served) {
		state.Rate = t.rate
	}
	if t.ceiling < 1 {
		state.Balance = time.Duration(min(t.balance, t.room))
	}
	state.Usage.Entitled = time.Duration(t.entitled)
	return state
}
