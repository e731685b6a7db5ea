// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/rig"
)

// TestRandomCallsKeepLedgerAndTruthEqual lets several processes with several
// threads do whatever the driver allows, in a share that is too small for all of it.
// At every quiet point the ledger must be what the card holds, to the byte.
//
// RANDOM_RUNS does more than the few of every day, RANDOM_SEED repeats one.
func TestRandomCallsKeepLedgerAndTruthEqual(t *testing.T) {
	t.Parallel()
	runs := number(t, "RANDOM_RUNS", scaled(10))
	seed := number(t, "RANDOM_SEED", int(time.Now().UnixNano()%1_000_000_000))
	for i := range runs {
		t.Run(fmt.Sprint("RANDOM_SEED=", seed+i), func(t *testing.T) {
			t.Parallel()
			randomRun(t, seed+i)
		})
	}
}

func randomRun(t *testing.T, seed int) {
	t.Helper()
	dice := rand.New(rand.NewPCG(uint64(seed), 1))
	processes, threads, rounds := 1+dice.IntN(3), 1+dice.IntN(3), 8
	p := newPlace(t, uint64(200*processes+dice.IntN(400)))
	t.Logf("%d processes of %d threads, limit %d MiB", processes, threads, p.share.Limit/rig.MiB)
	programs := make([]*rig.Program, processes)
	for i := range programs {
		args := []string{strconv.Itoa(seed*100 + i), strconv.Itoa(rounds), strconv.Itoa(20 + dice.IntN(60)), strconv.Itoa(threads)}
		programs[i] = start(t, p.box, nil, "random", args...)
	}
	for round := -1; round < rounds; round++ {
		want := "quiet start"
		if round >= 0 {
			want = fmt.Sprint("quiet ", round)
		}
		for _, program := range programs {
			line, err := program.Expect("quiet")
			require.NoError(t, err)
			require.Equal(t, want, line.Text)
		}
		p.settled(t)
		for _, program := range programs {
			require.NoError(t, program.Say("go on"))
		}
	}
	for _, program := range programs {
		if _, err := program.End(); err != nil {
			// One of the ways in which it ends is that it kills itself.
			require.ErrorContains(t, err, "signal: killed")
		}
	}
	p.gone(t)
	require.NoError(t, p.rig.Audit(p.card))
}
