// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// share is what a claim's containers and the arbiter see of its only share.
func (p *process) share(t *testing.T, claim string) share.Share {
	t.Helper()
	dirs := cdi.NewDirs(filepath.Join(p.root, "state", "shares"), durableFiles())
	keys, err := dirs.Of(string(fixture.Claim(claim).UID))
	require.NoError(t, err)
	require.Len(t, keys, 1)
	s, ok := dirs.Holding(keys[0])
	require.True(t, ok)
	return s
}

func TestLabelsOfNodeAndClaimHold(t *testing.T) {
	t.Parallel()
	p := start(t, "--sim-fleet="+oneCard(t), "--default-policy=best-effort")
	p.published(t)
	prepare := func(name string) {
		claim := fixture.Claim(name, fixture.Result{Request: "gpu", Cores: 20, Memory: "1Gi"})
		require.Empty(t, p.prepare(t, claim))
	}
	prepare("by-flag")
	require.Equal(t, share.BestEffort, p.share(t, "by-flag").Policy)
	p.nodes.Set("n", fixture.Pool, map[string]string{v1alpha1.LabelDefaultPolicy: string(share.NativeBurst)})
	seen := 0
	require.Eventually(t, func() bool {
		seen++
		name := "by-label-" + string(rune('a'+seen))
		claim := fixture.Claim(name, fixture.Result{Request: "gpu", Memory: "1Gi"})
		require.Empty(t, p.prepare(t, claim))
		return p.share(t, name).Policy == share.NativeBurst
	}, patient, 200*time.Millisecond, "the label is heeded before long")
	require.Equal(t, share.BestEffort, p.share(t, "by-flag").Policy, "who runs keeps what it has")

	prepare("live")
	require.EqualValues(t, 100, p.share(t, "live").BurstCeiling)
	live := claims.Of(fixture.Claim("live"))
	p.claims.Set(live.UID, live.Name, map[string]string{v1alpha1.LabelBurstCeiling: "60"})
	require.Eventually(t, func() bool { return p.share(t, "live").BurstCeiling == 60 }, patient, 10*time.Millisecond)
	p.claims.Set(live.UID, live.Name, nil)
	require.Eventually(t, func() bool { return p.share(t, "live").BurstCeiling == 100 }, patient, 10*time.Millisecond)
}
