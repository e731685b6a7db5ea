// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/metrics"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/golden"
)

type uses struct {
	shares []metrics.ShareUse
	cards  []metrics.CardUse
}

func (u *uses) Uses() ([]metrics.ShareUse, []metrics.CardUse) { return u.shares, u.cards }

func busy() *uses {
	return &uses{
		shares: []metrics.ShareUse{
			{
				Namespace: "team-a", Claim: "notebook", Request: "gpu", Card: "GPU-a", Limit: 4 << 30, Charged: 3 << 30, Implicit: 1 << 20,
				Processes: 2, Refused: 1, Reaped: 5,
			},
			{Namespace: "team-a", Claim: "train", Request: "main/big", Card: "GPU-a", Limit: 1 << 30, Charged: 2 << 30, Processes: 1, Withheld: true, Findings: 1},
			// The same card twice in one claim.
			{Namespace: "team-b", Claim: "twice", Request: "gpu", Card: "GPU-a", Limit: 1 << 30, Processes: 1},
			{Namespace: "team-b", Claim: "twice", Request: "gpu", Card: "GPU-a", Limit: 2 << 30, Processes: 2},
			{Namespace: "team-c", Claim: "whole", Request: "gpu", Card: "GPU-b", Limit: ^uint64(0), Unlimited: true},
		},
		cards: []metrics.CardUse{
			{Card: "GPU-a", Readable: true, Used: 5 << 30, Unattributed: 7, Processes: 6},
			{Card: "GPU-b"},
		},
	}
}

// divided is how the cards' compute is divided.
type divided struct {
	shares []nodeview.Guarantee
	cards  []metrics.CardTurns
}

func (d *divided) Guarantees(context.Context) []nodeview.Guarantee { return d.shares }
func (d *divided) Turns(context.Context) []metrics.CardTurns       { return d.cards }

func divisions() *divided {
	of := func(claim string, c card.UUID, policy share.Policy, class share.Class, limits share.Limits) nodeview.Guarantee {
		g := nodeview.Guarantee{
			ID:   share.ID{Claim: share.Claim{Namespace: "team-a", Name: claim}, Request: "gpu"},
			Card: c, Policy: policy, Class: class, Limits: limits, Ceiling: 80, Rate: .25,
			Wanted: 10 * time.Second, Held: 3 * time.Second, Entitled: 2900 * time.Millisecond, Throttled: 7 * time.Second, Preemptions: 3,
		}
		for _, d := range []time.Duration{40 * time.Microsecond, 4 * time.Millisecond, 3 * time.Second} {
			g.Latency.Add(d)
		}
		return g
	}
	return &divided{
		shares: []nodeview.Guarantee{
			of("serve", "GPU-a", share.GuaranteedBurst, share.Online, share.Limits{Cores: 30}),
			of("batch", "GPU-a", share.Fixed, share.Offline, share.Limits{OfflineCores: 40}),
			// The same card twice in one claim.
			of("twice", "GPU-b", share.NativeBurst, share.NoClass, share.Limits{Cores: 10}),
			of("twice", "GPU-b", share.NativeBurst, share.NoClass, share.Limits{Cores: 20}),
		},
		cards: []metrics.CardTurns{
			{
				Card: "GPU-a", Switches: 12, Quantum: 5 * time.Millisecond, Held: 6 * time.Second, Draining: time.Second / 2, Idle: time.Minute, Overlap: time.Second / 4,
			},
			{Card: "GPU-b", Quantum: 2 * time.Millisecond},
		},
	}
}

func TestHowComputeIsDivided(t *testing.T) {
	t.Parallel()
	d := divisions()
	a := metrics.NewArbiter(metrics.Build{Version: "v1.2.3", Revision: "abc", GoVersion: "go1"}, nil, &uses{})
	a.ShowCompute(d)
	golden.Equal(t, "compute.prom", arbiterLines(a))
	problems, err := testutil.GatherAndLint(a.Gatherer())
	require.NoError(t, err)
	require.Empty(t, problems)
	d.shares, d.cards = nil, nil
	require.NotContains(t, string(arbiterLines(a)), "share_", "shares that have ended leave no series")
	require.NotContains(t, string(arbiterLines(a)), "card_")
}

func arbiterLines(a *metrics.Arbiter) []byte {
	answer := httptest.NewRecorder()
	a.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	var lines []byte
	for line := range strings.Lines(answer.Body.String()) {
		if strings.Contains(line, "tranche_arbiter_") {
			lines = append(lines, line...)
		}
	}
	return lines
}

func TestWhatABusyArbiterShows(t *testing.T) {
	t.Parallel()
	a := metrics.NewArbiter(metrics.Build{Version: "v1.2.3", Revision: "abc", GoVersion: "go1"}, []string{"OverLimit", "Unknown"}, busy())
	a.Reaped(80 * time.Microsecond)
	a.Reaped(3 * time.Millisecond)
	a.Found("OverLimit")
	a.Killed()
	golden.Equal(t, "arbiter.prom", arbiterLines(a))
	problems, err := testutil.GatherAndLint(a.Gatherer())
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestSharesThatHaveEndedLeaveNoSeries(t *testing.T) {
	t.Parallel()
	u := busy()
	a := metrics.NewArbiter(metrics.Build{}, nil, u)
	for name, want := range map[string]int{
		"tranche_arbiter_share_processes": 4, "tranche_arbiter_card_readable": 2, "tranche_arbiter_card_processes": 1,
	} {
		count, err := testutil.GatherAndCount(a.Gatherer(), name)
		require.NoError(t, err)
		require.Equal(t, want, count, name)
	}
	u.shares, u.cards = nil, nil
	require.NotContains(t, string(arbiterLines(a)), "share_")
	require.NotContains(t, string(arbiterLines(a)), "card_")
}
