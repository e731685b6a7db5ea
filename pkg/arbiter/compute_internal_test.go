// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// divided is a card whose time is divided without a thread, at times that the test names.
type divided struct {
	*compute
	demands map[share.Key][]*wire.Demand
}

// newDivided has shares of 50 % with so many processes, which all want the card.
func newDivided(processes map[share.Key]int) divided { return newDividedAt(0, processes) }

func newDividedAt(now lease.Time, processes map[share.Key]int) divided {
	d := divided{newCompute(), map[share.Key][]*wire.Demand{}}
	for key, n := range processes {
		document := cdi.ShareDocument{Key: key, Policy: share.GuaranteedBurst, Limits: share.Limits{Cores: 50}, Card: cdi.ShareCard{UUID: card.UUID("GPU-1")}}
		document.Claim.UID = string(key)
		d.put(document, &wire.Grant{}, now)
		for range n {
			demand := &wire.Demand{}
			demand.Wants.Store(1)
			d.demands[key] = append(d.demands[key], demand)
			d.tenants[key].askers = append(d.tenants[key].askers, asker{of: &attachment{}, demand: demand})
		}
	}
	return d
}

// at has everything looked at, as the thread does.
func (d divided) at(now lease.Time) {
	for _, t := range d.tenants {
		d.look(t, now)
	}
	d.heed(klog.Logger{}, now)
	d.unstick(now)
	d.widen(now)
	d.decide(klog.Logger{}, now)
}

func (d divided) state(key share.Key) uint32 { return d.tenants[key].word & wire.LeaseState }

// Kernels take longer than was estimated, and those of one process wait for those of others, which
// it does not know of.
func TestAShareOfWhichSomethingEndsIsNotStuck(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	d := newDivided(map[share.Key]int{"many": 4, "one": 1})
	now := lease.Time(0)
	until := func(state uint32) {
		for d.at(now); d.state("many") != state; d.at(now) {
			now += ms
			require.Less(t, now, time.Second)
			d.demands["one"][0].Drained.Store(d.tenants["one"].word)
		}
	}
	until(wire.LeaseOpen)
	until(wire.LeaseClosed)
	for _, demand := range d.demands["many"] {
		demand.Waiting.Store(1)
	}
	goesOn := func() {
		t.Helper()
		now += stuckAfter
		d.at(now)
		require.Equal(t, wire.LeaseClosed, d.state("many"))
	}
	for _, demand := range d.demands["many"][1:] {
		demand.Drained.Store(d.tenants["many"].word)
		goesOn()
	}
	for range 3 {
		d.demands["many"][0].Used.Add(1)
		goesOn()
	}
	d.at(now + stuckAfter)
	require.Equal(t, wire.LeaseOpen, d.state("many"), "what is left does not end, and threads wait")
}
