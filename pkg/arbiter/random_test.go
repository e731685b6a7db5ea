// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// tenant is a helper and what it must be charged with.
type tenant struct {
	*helper
	held uint64
}

// Processes come, take, give, execute other programs and are killed, while one
// arbiter follows another: whenever all is quiet, the ledger says what the living
// hold.
func TestTheLedgerSaysWhatTheLivingHold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			n := newNode(t)
			n.watch(arbiter.ActionEvent)
			current := n.start(t)
			dir := n.served(t, some("a", 4096))
			tenants := make([]*tenant, 5)
			for round := range 60 {
				who := random.IntN(len(tenants))
				if tenants[who] == nil {
					tenants[who] = &tenant{helper: startHelper(t)}
					require.Regexp(t, "^slot [0-9]+ ok$", tenants[who].ask(t, "attach", dir))
				}
				switch tenant := tenants[who]; random.IntN(12) {
				case 0:
					tenant.end()
					tenants[who] = nil
				case 1:
					require.Equal(t, "executed", tenant.ask(t, "exec"))
					tenant.held = 0
					require.Regexp(t, "^slot [0-9]+ ok$", tenant.ask(t, "attach", dir))
				case 2:
					next := n.start(t) // stands by
					current.stop()
					current = next
				case 3, 4:
					require.Regexp(t, "^slot [0-9]+ ok$", tenant.ask(t, "again", dir))
				case 5, 6:
					amount := random.Uint64N(tenant.held + 1)
					require.Equal(t, "given", tenant.ask(t, "give", amount))
					tenant.held -= amount
				default:
					amount := random.Uint64N(1500 * mib)
					took, err := strconv.ParseBool(tenant.ask(t, "take", amount))
					require.NoError(t, err)
					if took {
						tenant.held += amount
					}
				}
				if round%10 == 9 {
					settled(t, dir, tenants)
				}
			}
			require.Empty(t, n.events.all())
		})
	}
}

// settled waits until the ledger says what the living hold.
func settled(t *testing.T, dir string, tenants []*tenant) {
	t.Helper()
	want, alive := uint64(0), 0
	for _, tenant := range tenants {
		if tenant != nil {
			want += tenant.held
			alive++
		}
	}
	require.LessOrEqual(t, want, uint64(4096*mib))
	var o *wireclient.Client
	eventually(t, func() bool {
		o = connect(t, dir, wireclient.Hello(wire.RoleObserver))
		taken := 0
		for i := range o.Ledger.Slot {
			if o.Ledger.Slot[i].Attached.Load() != 0 {
				taken++
			}
		}
		return o.Charge() == want && taken == alive
	}, "the ledger says what %d processes hold", alive)
}
