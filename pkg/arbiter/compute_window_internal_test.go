// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/share"
)

func TestWhoIsAloneForLongMayHaveMoreInFlight(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	p := play(newDivided(map[share.Key]int{"some": 2, "other": 1}))
	window := func() time.Duration {
		return time.Duration(p.tenants["some"].grant.Window.Load())
	}
	wants := func(want uint32) {
		p.demands["other"][0].Wants.Store(want)
		p.pass(ms)
	}
	wants(0)
	require.Equal(t, shareWindow/2, window())
	for range 2 {
		p.pass(900 * ms)
		require.Equal(t, shareWindow/2, window(), "the other one may come back")
		p.pass(150 * ms)
		require.Equal(t, aloneWindow/2, window())
		require.Equal(t, forever, p.tenants["some"].widensAt(), "nothing is to be done any more")
		wants(1)
		require.Equal(t, shareWindow/2, window(), "from when others want the card")
		p.pass(2000 * ms)
		require.Equal(t, shareWindow/2, window())
		wants(0)
	}
	p.demands["some"][0].Wants.Store(0)
	p.pass(1100 * ms)
	require.Equal(t, aloneWindow, window())
}

func TestNobodyIsAloneWhoseWorkOthersWaitFor(t *testing.T) {
	t.Parallel()
	beside := play(newDivided(map[share.Key]int{"some": 1, "online": 1}))
	beside.demands["online"][0].Wants.Store(0)
	beside.pass(3 * time.Second)
	some := beside.tenants["some"]
	require.EqualValues(t, aloneWindow, some.grant.Window.Load())
	beside.classed("online", share.Online)
	require.EqualValues(t, shareWindow, some.grant.Window.Load(), "its requests come at any time")
	require.Equal(t, forever, some.widensAt())
	beside.pass(3 * time.Second)
	require.EqualValues(t, shareWindow, some.grant.Window.Load())

	p := play(newDivided(map[share.Key]int{"offline": 1, "fixed": 1}))
	p.classed("offline", share.Offline)
	p.demands["fixed"][0].Wants.Store(0)
	p.pass(3 * time.Second)
	require.EqualValues(t, offlineWindow, p.tenants["offline"].grant.Window.Load(), "online work comes at any time")

	fixed := p.tenants["fixed"]
	document := cdi.ShareDocument{Key: fixed.Key, Policy: share.Fixed, Limits: share.Limits{Cores: 50}, Card: cdi.ShareCard{UUID: fixed.Card}}
	p.put(document, fixed.grant, p.now)
	p.demands["offline"][0].Wants.Store(0)
	p.demands["fixed"][0].Wants.Store(1)
	p.pass(3 * time.Second)
	require.EqualValues(t, shareWindow, fixed.grant.Window.Load(), "it is never to have more than its share")
}
