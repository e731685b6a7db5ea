// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

func TestBusySharesGetTheirPercent(t *testing.T) {
	t.Parallel()
	for _, cores := range [][]card.Percent{{20, 30, 50}, {10, 90}, {25, 75}, {20, 20, 20, 20, 20}} {
		for _, policy := range []share.Policy{share.Fixed, share.GuaranteedBurst, share.NativeBurst} {
			for _, kernel := range []time.Duration{50 * us, 200 * us, ms, 5 * ms, 20 * ms} {
				t.Run(fmt.Sprint(cores, policy, kernel), func(t *testing.T) {
					t.Parallel()
					var workers []*worker
					for i, c := range cores {
						workers = append(workers, busy(tenant(string(rune('a'+i)), "x", policy, c), kernel))
					}
					m := simulate(t, workers...)
					m.run(11 * time.Second)
					second, ten := m.shares(time.Second), m.shares(10*time.Second)
					for i, c := range cores {
						require.InDelta(t, float64(c), second[i], 2)
						require.InDelta(t, float64(c), ten[i], 0.5)
					}
				})
			}
		}
	}
}
