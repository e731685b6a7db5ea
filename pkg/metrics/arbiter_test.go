// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/metrics"
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
