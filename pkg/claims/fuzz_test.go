// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Whatever an allocation says, decoding ends, and what it lets through is a
// share that the node can keep.
func FuzzDecode(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	require.NotEmpty(f, paths)
	for _, path := range paths {
		claim := load(f, strings.TrimSuffix(filepath.Base(path), ".yaml"))
		seed, err := json.Marshal(claim.Status.Allocation)
		require.NoError(f, err)
		f.Add(seed)
	}
	f.Add([]byte(`{"devices":{"results":[{"driver":"gpu.tranche.dev","pool":"node1","device":"` + first + `","shareID":""}],"config":[{},{"opaque":{}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		claim := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}}
		if json.Unmarshal(data, claim.Status.Allocation) != nil {
			t.Skip("not an allocation")
		}
		shares, err := claims.Decode(claim, node())
		if err != nil {
			var refused *claims.Error
			require.ErrorAs(t, err, &refused)
			require.Empty(t, shares)
			return
		}
		for _, s := range shares {
			requireSound(t, s)
		}
	})
}

func requireSound(t *testing.T, s share.Share) {
	t.Helper()
	c, ok := node().Card(s.Device)
	require.True(t, ok)
	require.Equal(t, c.UUID, s.Card)
	require.Equal(t, "node1", s.Pool)
	for _, p := range []card.Percent{s.Limits.Cores, s.Limits.OfflineCores, s.BurstCeiling} {
		require.GreaterOrEqual(t, p, card.Percent(0))
		require.LessOrEqual(t, p, card.WholeCompute)
	}
	require.GreaterOrEqual(t, s.Limits.Memory, card.MiB(256))
	require.LessOrEqual(t, s.Limits.Memory, c.Memory)
	require.Contains(t, share.Policies(), s.Policy)
	require.Contains(t, share.Classes(), s.Class)
	require.False(t, s.Limits.Cores > 0 && s.Limits.OfflineCores > 0)
	require.Equal(t, s.Whole, s.Limits.Cores == card.WholeCompute && s.Limits.Memory == c.Memory)
}

func BenchmarkDecode(b *testing.B) {
	for _, shares := range []int{1, 8} {
		name := "1 share"
		if shares > 1 {
			name = fmt.Sprintf("%d shares", shares)
		}
		b.Run(name, func(b *testing.B) {
			claim := load(b, "two-configs")
			devices := &claim.Status.Allocation.Devices
			pattern := devices.Results
			devices.Results = nil
			for i := range shares {
				r := pattern[i%len(pattern)].DeepCopy()
				id := types.UID(fmt.Sprint(i))
				r.ShareID = &id
				devices.Results = append(devices.Results, *r)
			}
			n := node()
			b.ReportAllocs()
			for b.Loop() {
				got, err := claims.Decode(claim, n)
				if err != nil || len(got) != shares {
					b.Fatal(got, err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
		})
	}
}
