// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

var (
	closed    = lease.Grant{}
	open      = lease.Grant{State: lease.Open}
	contended = lease.Grant{State: lease.Open, Contended: true}
	tell      = lease.Grant{State: lease.Open, Tell: true}
	free      = lease.Grant{State: lease.Free}
)

func TestTheNextOneIsOpenedBeforeTheLastOneHasDrained(t *testing.T) {
	t.Parallel()
	s := scheduler(burst("a", 50), burst("b", 50))
	s.Wants(0, "a", true)
	s.Decide(0)
	s.Wants(ms, "b", true)
	s.Decide(ms)
	s.Decide(10 * ms)
	s.Drains(10*ms, "a", 10*ms+80*us)
	require.Equal(t, []lease.Change{{"b", contended}}, s.Decide(10*ms).Changes)
	held := func(now lease.Time) (a, b time.Duration) {
		of := s.State(now)[0].Tenants
		return of[0].Usage.Held, of[1].Usage.Held
	}
	a, b := held(11 * ms)
	require.Equal(t, 10*ms+80*us, a, "the time until then is its own")
	require.Equal(t, 920*us, b)

	s.Lags(11*ms, "a")
	a, b = held(12 * ms)
	require.Equal(t, 10*ms+580*us, a, "it was wrong, and both have the hardware's turns")
	require.Equal(t, 1420*us, b)
	s.Drained(12*ms, "a")
	a, _ = held(13 * ms)
	require.Equal(t, 10*ms+580*us, a)

	s.Wants(14*ms, "b", false)
	s.Decide(14 * ms)
	s.Drains(14*ms, "a", lease.Never)
	require.Equal(t, "a", string(s.State(14 * ms)[0].Holder), "nobody who is open leaves")
	testSums(t, s, 15*ms)
}

// scheduler with tenants, none of whom wants anything yet.
func scheduler(tenants ...lease.Tenant) *lease.Scheduler {
	s := lease.New(lease.Config{})
	for _, t := range tenants {
		s.Put(0, t)
	}
	s.Decide(0)
	return s
}

func burst(key string, cores card.Percent) lease.Tenant {
	return tenant(key, "x", share.GuaranteedBurst, cores)
}

func classed(t lease.Tenant, c share.Class) lease.Tenant {
	t.Class = c
	if c == share.Offline {
		t.Limits = share.Limits{OfflineCores: t.Limits.Cores}
	}
	return t
}

func ganged(t lease.Tenant, on card.UUID) lease.Tenant {
	t.Gang, t.Card = "gang", on
	return t
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	type step struct {
		at   time.Duration
		do   func(s *lease.Scheduler, now lease.Time)
		want []lease.Change
		next time.Duration // checked where it is not zero
	}
	wants := func(k share.Key, w bool) func(*lease.Scheduler, lease.Time) {
		return func(s *lease.Scheduler, now lease.Time) { s.Wants(now, k, w) }
	}
	drained := func(k share.Key) func(*lease.Scheduler, lease.Time) {
		return func(s *lease.Scheduler, now lease.Time) { s.Drained(now, k) }
	}
	put := func(o lease.Tenant) func(*lease.Scheduler, lease.Time) {
		return func(s *lease.Scheduler, now lease.Time) { s.Put(now, o) }
	}
	remove := func(k share.Key) func(*lease.Scheduler, lease.Time) {
		return func(s *lease.Scheduler, now lease.Time) { s.Remove(now, k) }
	}
	withhold := func(k share.Key, w bool) func(*lease.Scheduler, lease.Time) {
		return func(s *lease.Scheduler, now lease.Time) { s.Withhold(now, k, w) }
	}
	both := func(a, b share.Key) func(*lease.Scheduler, lease.Time) {
		return func(s *lease.Scheduler, now lease.Time) { s.Wants(now, a, true); s.Wants(now, b, true) }
	}
	nothing := func(*lease.Scheduler, lease.Time) {}
	for name, test := range map[string]struct {
		tenants []lease.Tenant
		steps   []step
	}{
		"who is alone and may use the whole card is free, until somebody comes": {
			steps: []step{
				{0, put(burst("a", 20)), []lease.Change{{"a", free}}, lease.Never},
				{ms, wants("a", true), nil, lease.Never},
				{2 * ms, put(burst("b", 20)), []lease.Change{{"a", open}}, lease.Never},
				{3 * ms, remove("b"), []lease.Change{{"a", free}}, lease.Never},
			},
		},
		"who is alone and has a ceiling is not free": {
			steps: []step{
				{0, put(tenant("a", "x", share.Fixed, 20)), nil, lease.Never},
				{0, wants("a", true), []lease.Change{{"a", contended}}, 2 * ms},
				{2 * ms, nothing, []lease.Change{{"a", closed}}, 0},
				{2 * ms, drained("a"), nil, 10 * ms},
				{10 * ms, nothing, []lease.Change{{"a", contended}}, 12 * ms},
			},
		},
		"an idle holder keeps the card until somebody wants it": {
			tenants: []lease.Tenant{burst("a", 50), burst("b", 50)},
			steps: []step{
				{0, wants("a", true), []lease.Change{{"a", open}}, lease.Never},
				{ms, wants("a", false), nil, lease.Never},
				{2 * ms, wants("a", true), nil, lease.Never},
				{3 * ms, wants("a", false), nil, lease.Never},
				{9 * ms, wants("b", true), []lease.Change{{"a", closed}, {"b", open}}, lease.Never},
			},
		},
		"a holder whose turn is over drains before the next one is opened": {
			tenants: []lease.Tenant{burst("a", 50), burst("b", 50)},
			steps: []step{
				{0, wants("a", true), []lease.Change{{"a", open}}, lease.Never},
				{0, wants("b", true), []lease.Change{{"a", contended}}, ms},
				{ms, nothing, []lease.Change{{"a", closed}}, 101 * ms},
				{2 * ms, drained("a"), []lease.Change{{"b", contended}}, 12 * ms},
				{12 * ms, nothing, []lease.Change{{"b", closed}}, 112 * ms},
				{112 * ms, nothing, []lease.Change{{"a", contended}}, 0},
			},
		},
		"online work does not wait for offline work to drain": {
			tenants: []lease.Tenant{classed(burst("off", 50), share.Offline), classed(burst("on", 50), share.Online)},
			steps: []step{
				{0, wants("off", true), []lease.Change{{"off", open}, {"on", tell}}, lease.Never},
				{ms, wants("on", true), []lease.Change{{"off", closed}, {"on", contended}}, 0},
				{2 * ms, wants("on", false), nil, 3 * ms},
				{3 * ms, nothing, []lease.Change{{"off", open}, {"on", tell}}, lease.Never},
			},
		},
		"offline work starts once online work, which had the card before, has drained": {
			tenants: []lease.Tenant{classed(burst("off", 50), share.Offline), burst("none", 50)},
			steps: []step{
				{0, wants("none", true), []lease.Change{{"none", open}}, lease.Never},
				{0, wants("off", true), []lease.Change{{"none", contended}}, lease.Never},
				{ms, wants("none", false), []lease.Change{{"none", closed}, {"off", open}}, lease.Never},
				{2 * ms, wants("none", true), []lease.Change{{"off", closed}, {"none", contended}}, 0},
			},
		},
		"a withheld tenant is closed, and others go on": {
			tenants: []lease.Tenant{burst("a", 50), burst("b", 50)},
			steps: []step{
				{0, wants("a", true), []lease.Change{{"a", open}}, lease.Never},
				{ms, withhold("a", true), []lease.Change{{"a", closed}}, 0},
				{2 * ms, wants("b", true), nil, 101 * ms},
				{3 * ms, drained("a"), []lease.Change{{"b", open}}, lease.Never},
				{4 * ms, withhold("a", false), []lease.Change{{"b", contended}}, 0},
			},
		},
		"a holder that is removed leaves the card": {
			tenants: []lease.Tenant{burst("a", 40), burst("b", 30), burst("c", 30)},
			steps: []step{
				{0, wants("a", true), []lease.Change{{"a", open}}, lease.Never},
				{0, wants("b", true), []lease.Change{{"a", contended}}, 0},
				{500 * us, remove("a"), []lease.Change{{"b", open}}, lease.Never},
			},
		},
		"who is removed while it drains keeps nobody waiting": {
			tenants: []lease.Tenant{burst("a", 40), burst("b", 30), burst("c", 30)},
			steps: []step{
				{0, wants("a", true), []lease.Change{{"a", open}}, lease.Never},
				{0, wants("b", true), []lease.Change{{"a", contended}}, 0},
				{10 * ms, nothing, []lease.Change{{"a", closed}}, 110 * ms},
				{11 * ms, remove("a"), []lease.Change{{"b", open}}, lease.Never},
			},
		},
		"unknown tenants and stale answers change nothing": {
			tenants: []lease.Tenant{burst("a", 50), burst("b", 50)},
			steps: []step{
				{0, wants("nobody", true), nil, lease.Never},
				{0, drained("nobody"), nil, lease.Never},
				{0, withhold("nobody", true), nil, lease.Never},
				{0, wants("a", true), []lease.Change{{"a", open}}, lease.Never},
				{0, drained("a"), nil, lease.Never},
				{0, wants("a", true), nil, lease.Never},
			},
		},
		"a gang is opened on both cards at once, when both are to be had": {
			tenants: []lease.Tenant{
				ganged(burst("g0", 50), "x"), ganged(burst("g1", 50), "y"),
				burst("a", 50), tenant("b", "y", share.GuaranteedBurst, 50),
			},
			steps: []step{
				{0, wants("b", true), []lease.Change{{"b", open}}, lease.Never},
				{10 * ms, both("g0", "g1"), []lease.Change{{"b", closed}}, 0},
				{11 * ms, drained("b"), []lease.Change{{"g0", open}, {"g1", contended}}, 0},
				{16 * ms, nothing, nil, 31 * ms},
				{31 * ms, nothing, []lease.Change{{"g0", closed}, {"g1", closed}}, 0},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scheduler(test.tenants...)
			for i, step := range test.steps {
				step.do(s, step.at)
				d := s.Decide(step.at)
				require.Equal(t, step.want, append([]lease.Change(nil), d.Changes...), "step %d", i)
				if step.next != 0 {
					require.Equal(t, step.next, d.Next, "step %d", i)
				}
			}
		})
	}
}

func TestPreemptionsAreTold(t *testing.T) {
	t.Parallel()
	s := scheduler(classed(burst("off", 50), share.Offline), classed(burst("on", 50), share.Online))
	s.Wants(0, "off", true)
	s.Decide(0)
	s.Wants(10*ms, "on", true)
	s.Decide(10*ms + 50*us)
	require.Empty(t, s.Preemptions(), "not complete yet")
	s.Drained(11*ms, "off")
	require.Equal(t, []lease.Preempted{{Key: "off", For: "on", Latency: ms}}, s.Preemptions())
	require.Empty(t, s.Preemptions())
	require.EqualValues(t, 1, s.State(11 * ms)[0].Tenants[0].Usage.Preemptions)
}

func TestTimetable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tenants []lease.Tenant
		want    map[share.Key]lease.Turn
	}{
		"nobody": {nil, map[share.Key]lease.Turn{}},
		"each has its percent": {
			[]lease.Tenant{tenant("b", "x", share.Fixed, 30), tenant("a", "x", share.GuaranteedBurst, 20), tenant("c", "y", share.NativeBurst, 50)},
			map[share.Key]lease.Turn{"a": {0, 20 * ms}, "b": {20 * ms, 30 * ms}, "c": {0, 50 * ms}},
		},
		"those without a percent divide the rest": {
			[]lease.Tenant{tenant("a", "x", share.Fixed, 40), tenant("b", "x", share.BestEffort, 0), tenant("c", "x", share.BestEffort, 0)},
			map[share.Key]lease.Turn{"a": {0, 40 * ms}, "b": {40 * ms, 30 * ms}, "c": {70 * ms, 30 * ms}},
		},
		"offline shares have a little where nothing is left": {
			[]lease.Tenant{tenant("a", "x", share.Fixed, 100), classed(burst("b", 100), share.Offline)},
			map[share.Key]lease.Turn{"a": {0, 95 * ms}, "b": {95 * ms, 5 * ms}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, lease.Timetable(test.tenants, 100*ms))
		})
	}
}
