// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/metrics"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/golden"
)

var errBroken = errors.New("broken")

type holdings struct {
	shares []share.Share
	err    error
}

func (h holdings) Shares() ([]share.Share, error) { return h.shares, h.err }

func held(claim string, c card.UUID, l share.Limits) share.Share {
	return share.Share{ID: share.ID{Claim: share.Claim{UID: claim}}, Card: c, Limits: l}
}

func cards() []card.Card {
	return []card.Card{
		{UUID: "GPU-a", Index: 0, Memory: 24 << 10},
		{UUID: "GPU-b", Index: 1, Memory: 80 << 10, Faults: []card.Fault{{Kind: "XidError"}, {Kind: "EccError"}, {Kind: "XidError"}}},
		{UUID: "GPU-c", Index: 2, WholeOnly: true},
		{UUID: "GPU-c", Index: 2, WholeOnly: true}, // twice by mistake
	}
}

// names of metrics that depend on nothing outside of this test.
var ours = []string{
	"tranche_node_build_info", "tranche_node_card_cores_allocated", "tranche_node_card_cores", "tranche_node_card_fault",
	"tranche_node_card_lists_total", "tranche_node_card_memory_allocated_bytes", "tranche_node_card_memory_bytes",
	"tranche_node_card_offline_cores_allocated", "tranche_node_card_offline_cores", "tranche_node_card_slots",
	"tranche_node_card_slots_used", "tranche_node_heals_total", "tranche_node_prepare_duration_seconds",
	"tranche_node_prepared_claims", "tranche_node_prepared_shares", "tranche_node_publish_total", "tranche_node_published_cards",
	"tranche_node_quarantined_records_total", "tranche_node_records_readable", "tranche_node_unprepare_duration_seconds",
}

func TestWhatAFullNodeShows(t *testing.T) {
	t.Parallel()
	n := metrics.New(metrics.Build{Version: "v1.2.3", Revision: "abc", GoVersion: "go1"}, 16, holdings{shares: []share.Share{
		held("c1", "GPU-a", share.Limits{Cores: 30, Memory: 4 << 10}),
		held("c2", "GPU-a", share.Limits{Cores: 30, Memory: 8 << 10}),
		held("c2", "GPU-b", share.Limits{OfflineCores: 50, Memory: 1 << 10}),
		held("c3", "GPU-gone", share.Limits{Cores: 10, Memory: 1 << 10}),
	}})
	n.CardsListed(cards(), nil)
	n.CardsListed(nil, errBroken)
	n.CardsPublished(3)
	n.PublishDone(nil)
	n.PublishDone(errBroken)
	n.PrepareDone(3*time.Millisecond, nil)
	n.PrepareDone(40*time.Second, errBroken)
	n.UnprepareDone(time.Millisecond/2, nil)
	n.Healed("orphan")
	n.Healed("orphan")
	n.Healed("restored")
	n.Quarantined()
	golden.Equal(t, "full.prom", ourLines(n))
	problems, err := testutil.GatherAndLint(n.Gatherer(), ours...)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// ourLines is what Prometheus reads, without the metrics of Go and the process.
func ourLines(n *metrics.Node) []byte {
	answer := httptest.NewRecorder()
	n.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	var lines []byte
	for line := range strings.Lines(answer.Body.String()) {
		if strings.Contains(line, "tranche_node_") {
			lines = append(lines, line...)
		}
	}
	return lines
}

func TestOnlyKnownNamesAreServed(t *testing.T) {
	t.Parallel()
	n := metrics.New(metrics.Build{}, 16, holdings{})
	n.CardsListed(cards(), nil)
	n.PrepareDone(0, nil)
	n.UnprepareDone(0, nil)
	n.Healed("orphan")
	served := map[string]bool{}
	for line := range strings.Lines(string(ourLines(n))) {
		if name, found := strings.CutPrefix(line, "# TYPE tranche_"); found {
			served["tranche_"+strings.Fields(name)[0]] = true
		}
	}
	for _, name := range ours {
		if name != "tranche_node_card_memory_allocated_bytes" {
			require.Contains(t, served, name)
		}
		delete(served, name)
	}
	require.Empty(t, served, "these have no golden file")
	count, err := testutil.GatherAndCount(n.Gatherer(), "process_resident_memory_bytes", "go_goroutines")
	require.NoError(t, err)
	require.Equal(t, 2, count)
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	n := metrics.New(metrics.Build{}, 16, holdings{err: errBroken})
	n.CardsListed(cards(), nil)
	for name, want := range map[string]int{
		"tranche_node_records_readable":     1,
		"tranche_node_prepared_claims":      0,
		"tranche_node_card_slots_used":      0,
		"tranche_node_card_cores_allocated": 0,
		"tranche_node_card_cores":           3,
	} {
		count, err := testutil.GatherAndCount(n.Gatherer(), name)
		require.NoError(t, err, "the other metrics are served all the same")
		require.Equal(t, want, count, name)
	}
}

func TestCardsAndFaultsThatAreGoneLeaveNoSeries(t *testing.T) {
	t.Parallel()
	n := metrics.New(metrics.Build{}, 16, nil)
	n.CardsListed(cards(), nil)
	n.CardsListed([]card.Card{{UUID: "GPU-b", Index: 1}}, nil)
	for name, want := range map[string]int{"tranche_node_card_fault": 0, "tranche_node_card_cores": 1} {
		count, err := testutil.GatherAndCount(n.Gatherer(), name)
		require.NoError(t, err)
		require.Equal(t, want, count, name)
	}
}

func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	n := metrics.New(metrics.Build{}, 16, nil)
	for i := range 1000 {
		n.Healed(fmt.Sprintf("kind-%d", i))
		n.Healed("kind-0")
	}
	count, err := testutil.GatherAndCount(n.Gatherer(), "tranche_node_heals_total")
	require.NoError(t, err)
	require.Equal(t, 17, count, "sixteen kinds and the rest")
}

func TestNopDoesNothing(t *testing.T) {
	t.Parallel()
	var n metrics.Nop
	require.NotPanics(t, func() {
		n.PrepareDone(0, nil)
		n.UnprepareDone(0, errBroken)
		n.PublishDone(nil)
		n.CardsListed(cards(), nil)
		n.CardsPublished(1)
		n.Healed("orphan")
		n.Quarantined()
	})
}
