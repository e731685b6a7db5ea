// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/metrics"
)

var _ metrics.Compute = (*Arbiter)(nil)

// Turns implements metrics.Compute: it tells how the cards that have shares go from
// one to another, by UUID. It is empty while the arbiter serves nothing.
func (a *Arbiter) Turns(ctx context.Context) []metrics.CardTurns {
	if !a.serving.Load() {
		return nil
	}
	var states []lease.CardState
	asked := a.compute.ask(ctx, func(now lease.Time) { states = a.compute.scheduler.State(now) })
	if !asked {
		return nil // it may write into the others still
	}
	turns := make([]metrics.CardTurns, 0, len(states))
	for _, s := range states {
		turns = append(turns, metrics.CardTurns{
			Card: s.Card, Switches: s.Switches, Quantum: s.Quantum, Held: s.Held, Draining: s.Draining, Idle: s.Idle, Overlap: s.Overlap,
		})
	}
	return turns
}
