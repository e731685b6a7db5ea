// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func TestHealthOfCardsIsReportedAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(t)
	eventually(t, "published", m.api.hasCards(t, 2))
	until := m.health(t)
	until(drahealthv1.HealthStatus_HEALTHY, "")
	until(drahealthv1.HealthStatus_HEALTHY, "") // sent again without a change
	sick := fixture.Card(0)
	sick.Faults = []card.Fault{{Kind: "XidError", Message: "fell off the bus"}, {Kind: "EccError", Message: strings.Repeat("ü", 2000)}}
	m.cards.set(nil, sick)
	until(drahealthv1.HealthStatus_UNHEALTHY, "XidError: fell off the bus; EccError: üü")
	m.cards.set(errors.New("library is being replaced"))
	until(drahealthv1.HealthStatus_UNKNOWN, "library is being replaced")
	m.cards.set(nil, fixture.Card(0))
	until(drahealthv1.HealthStatus_HEALTHY, "")
}

// health follows what is reported of the first card, until it is that.
func (m *machine) health(t *testing.T) (until func(status drahealthv1.HealthStatus, message string)) {
	t.Helper()
	stream, err := drahealthv1.NewDRAResourceHealthClient(dial(t, filepath.Join(m.root, "plugins", driver.Name, "dra-pod-1.sock"))).
		NodeWatchResources(t.Context(), &drahealthv1.NodeWatchResourcesRequest{})
	require.NoError(t, err)
	name := fixture.Card(0).DeviceName()
	return func(status drahealthv1.HealthStatus, message string) {
		for {
			report, err := stream.Recv()
			require.NoError(t, err)
			for _, d := range report.Devices {
				require.Equal(t, node, d.Device.PoolName)
				if d.Device.DeviceName == name && d.Health == status {
					require.Contains(t, d.Message, message)
					require.NotZero(t, d.LastUpdatedTime)
					return
				}
			}
		}
	}
}

func TestADriverThatHangsIsToldAndKeepsNobodyFromEnding(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	h := &hung{cards: m.cards, hang: make(chan struct{}), over: make(chan struct{})}
	defer close(h.over)
	m.source, m.limit = h, 50*time.Millisecond
	m.config.Timing.Drain, m.config.Timing.LetGo = 50*time.Millisecond, 50*time.Millisecond
	d := m.start(t)
	eventually(t, "published", m.api.hasCards(t, 2))
	until := m.health(t)
	until(drahealthv1.HealthStatus_HEALTHY, "")
	close(h.hang)
	until(drahealthv1.HealthStatus_UNKNOWN, "did not answer within 50ms")
	failed := m.counts.of(&m.counts.listed, "failed")
	eventually(t, "it is counted", func() bool { return m.counts.of(&m.counts.listed, "failed") > failed+3 })
	require.Len(t, m.events.with("CardsUnreadable", "hangs"), 1, "told once")
	m.api.deleteSlices(t)
	eventually(t, "the last good cards are still wanted", m.api.hasCards(t, 2))
	d.stop()
	ended := make(chan error, 1)
	go func() { ended <- d.wait() }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patient):
		require.Fail(t, "never: the driver ended")
	}
	require.Empty(t, m.sockets(t))
}

// hung is a source that stops to answer, as a driver does whose card fell off
// its bus: no context ends a call then. Calls return once the test is over.
type hung struct {
	*cards
	hang, over chan struct{}
}

func (h *hung) wait() {
	select {
	case <-h.hang:
		<-h.over
	default:
	}
}

func (h *hung) Cards(ctx context.Context) ([]card.Card, error) {
	h.wait()
	return h.cards.Cards(ctx)
}

func (h *hung) Watch(ctx context.Context, _ func(card.Event)) error {
	select {
	case <-h.hang:
		<-h.over
	case <-ctx.Done():
	}
	return nil
}
