// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// closes has an arbiter that begins then open the lease for a process that says all the time that nothing of it was in
// flight under that word, and close it for another share. It gives the word under which it is closed, and whether
// the process is believed.
func closes(t *testing.T, began lease.Time, said uint32) (word uint32, believed bool) {
	t.Helper()
	d := newDividedAt(began, map[share.Key]int{"worker": 1, "other": 1})
	d.demands["worker"][0].Drained.Store(said)
	d.demands["other"][0].Wants.Store(0)
	d.at(began)
	require.Equal(t, wire.LeaseOpen, d.state("worker"))
	d.demands["other"][0].Wants.Store(1)
	d.demands["other"][0].Drained.Store(d.tenants["other"].word)
	for now := began; d.state("worker") != wire.LeaseClosed; now += time.Millisecond {
		require.Less(t, now, began+time.Second)
		d.at(now)
	}
	return d.tenants["worker"].word, !d.tenants["worker"].draining
}

// A process says to each new arbiter what it said to the one before, until its lease is closed anew.
func TestAWordThatWasSaidToAnotherArbiterIsNotBelieved(t *testing.T) {
	t.Parallel()
	const first = time.Hour
	said, believed := closes(t, first, wire.LeaseOpen)
	require.False(t, believed, "it has said nothing")
	for _, later := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute, time.Hour} {
		word, believed := closes(t, first+later, said)
		require.False(t, believed, "an arbiter begins %s after the one that closed the lease under %#x, and closes it under %#x", later, said, word)
	}
}
