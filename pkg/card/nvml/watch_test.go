// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"sync"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
)

// clock is set by hand.
type clock struct {
	sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.now = c.now.Add(d)
}

// watch starts a Watch and gives its events.
func watch(t *testing.T, m *machine, o nvml.Options) (*nvml.Source, <-chan card.Event) {
	t.Helper()
	source := m.source(o)
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan card.Event, 64), make(chan error, 1)
	go func() { done <- source.Watch(ctx, func(e card.Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done, "a watch that is ended is no failure")
	})
	require.Equal(t, card.Event{Reason: "watching"}, next(t, events), "listers are told to look once the watch is there")
	return source, events
}

func next(t *testing.T, events <-chan card.Event) card.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(30 * time.Second):
		require.FailNow(t, "no event came")
		return card.Event{}
	}
}

func TestHardwareErrorsAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		send event
		want []card.Fault
	}{
		"an XID error without a name": {xid(nil, 200), []card.Fault{{Kind: nvml.FaultXID, Message: "Xid 200"}}},
		"off the bus": {
			xid(nil, 79), []card.Fault{{Kind: nvml.FaultXID, Message: "Xid 79: GPU has fallen off the bus", Evict: true}},
		},
		"a double-bit error": {
			event{data: gonvml.EventData{EventType: gonvml.EventTypeDoubleBitEccError}},
			[]card.Fault{{Kind: nvml.FaultXID, Message: "Xid 48: double-bit ECC error"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, dgxa100.New())
			source, events := watch(t, m, nvml.Options{PollInterval: time.Hour})
			tc.send.data.Device = m.device(6)
			m.events <- tc.send
			require.Equal(t, card.Event{Reason: "fault", Card: card.UUID(m.device(6).UUID)}, next(t, events))
			cards := list(t, source)
			require.Equal(t, tc.want, cards[6].Faults)
			require.True(t, cards[5].Healthy())
		})
	}
}

// Errors that applications cause are not the card's: the first event that comes
// is that of the one real error which is sent last.
func TestErrorsOfApplicationsAreNoFaults(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	source, events := watch(t, m, nvml.Options{PollInterval: time.Hour})
	for _, number := range []uint64{8, 11, 13, 31, 43, 45, 68, 109, 63, 92, 94, 154} {
		m.events <- xid(m.device(0), number)
	}
	m.events <- event{data: gonvml.EventData{Device: m.device(0), EventType: gonvml.EventTypeClock}}
	m.events <- xid(m.device(1), 74)
	require.Equal(t, card.Event{Reason: "fault", Card: card.UUID(m.device(1).UUID)}, next(t, events))
	require.True(t, list(t, source)[0].Healthy())
}

func TestSeveralErrorsOfACardAreListedInOrder(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	source, events := watch(t, m, nvml.Options{PollInterval: time.Hour})
	for _, number := range []uint64{119, 74, 119} {
		m.events <- xid(m.device(0), number)
	}
	next(t, events)
	next(t, events)
	require.Equal(t, []card.Fault{
		{Kind: nvml.FaultXID, Message: "Xid 74: NVLink error"},
		{Kind: nvml.FaultXID, Message: "Xid 119: GSP does not answer"},
	}, list(t, source)[0].Faults)
}

func TestRecoveryFromAnXIDError(t *testing.T) {
	t.Parallel()
	well := map[int]gonvml.DeviceGpuRecoveryAction{}
	reset := map[int]gonvml.DeviceGpuRecoveryAction{0: gonvml.GPU_RECOVERY_ACTION_GPU_RESET}
	for name, tc := range map[string]struct {
		// then is what the driver says after the error, and the hold that follows it.
		then   map[int]gonvml.DeviceGpuRecoveryAction
		before time.Duration
		at     time.Duration
	}{
		"an old driver does not say: the hold counts":    {nil, 10*time.Minute - time.Second, 10 * time.Minute},
		"a new driver says that the card is well: soon":  {well, 29 * time.Second, 30 * time.Second},
		"a new driver asks for a reset: as long as that": {reset, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, dgxa100.New())
			m.recovery = tc.then
			hands := &clock{now: time.Unix(1e9, 0)}
			source, events := watch(t, m, nvml.Options{PollInterval: time.Hour, Now: hands.read})
			m.events <- xid(m.device(0), 74)
			next(t, events)
			hands.advance(tc.before)
			require.False(t, list(t, source)[0].Healthy())
			if tc.at == 0 {
				m.set(func() { m.recovery = well })
				require.False(t, list(t, source)[0].Healthy(), "it was ill until now")
				tc.before, tc.at = 0, 30*time.Second
			}
			hands.advance(tc.at - tc.before)
			require.True(t, list(t, source)[0].Healthy())
			hands.advance(-tc.at)
			require.True(t, list(t, source)[0].Healthy(), "what is over is forgotten")
		})
	}
}

func TestRecoveryIsFoundByQuerying(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	source, events := watch(t, m, nvml.Options{PollInterval: time.Millisecond})
	m.set(func() { m.lost[4] = gonvml.ERROR_GPU_IS_LOST })
	require.Equal(t, card.Event{Reason: "fault", Card: card.UUID(m.device(4).UUID)}, next(t, events))
	m.set(func() { clear(m.lost) })
	require.Equal(t, card.Event{Reason: "recovery", Card: card.UUID(m.device(4).UUID)}, next(t, events))
	require.True(t, list(t, source)[4].Healthy())
}

func TestCardsWithoutEventsAreQueried(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	m.noEvents = true
	_, events := watch(t, m, nvml.Options{PollInterval: time.Millisecond})
	m.set(func() { m.uncorrected[1] = 1 })
	require.Equal(t, card.Event{Reason: "fault", Card: card.UUID(m.device(1).UUID)}, next(t, events))
}

func TestADriverThatComesLater(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	m.init = gonvml.ERROR_LIBRARY_NOT_FOUND
	_, events := watch(t, m, nvml.Options{PollInterval: time.Millisecond})
	m.set(func() { m.init = gonvml.SUCCESS })
	for i := range 8 {
		require.Equal(t, card.Event{Reason: "added", Card: card.UUID(m.device(i).UUID)}, next(t, events))
	}
	// Events are asked for as soon as there are cards.
	m.events <- xid(m.device(0), 79)
	require.Equal(t, "fault", next(t, events).Reason)
}

func TestAWaitThatFailsIsFollowedByAQuery(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	_, events := watch(t, m, nvml.Options{PollInterval: time.Hour})
	m.set(func() { m.lost[0] = gonvml.ERROR_GPU_IS_LOST })
	m.events <- event{ret: gonvml.ERROR_GPU_IS_LOST}
	require.Equal(t, card.Event{Reason: "fault", Card: card.UUID(m.device(0).UUID)}, next(t, events))
}

func TestEventsGoOnAfterASessionThatEnded(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	source, events := watch(t, m, nvml.Options{PollInterval: time.Hour})
	source.Close()
	m.events <- xid(m.device(7), 74)
	require.Equal(t, card.Event{Reason: "fault", Card: card.UUID(m.device(7).UUID)}, next(t, events))
}

func TestAnErrorOfANamelessCardIsFollowedByAQuery(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	_, events := watch(t, m, nvml.Options{PollInterval: time.Hour})
	m.set(func() { m.lost[0] = gonvml.ERROR_GPU_IS_LOST })
	stranger := dgxa100.NewDevice(0)
	stranger.GetUUIDFunc = func() (string, gonvml.Return) { return "", gonvml.ERROR_GPU_IS_LOST }
	m.events <- xid(stranger, 79)
	require.Equal(t, card.Event{Reason: "fault", Card: card.UUID(m.device(0).UUID)}, next(t, events))
}

func TestAWatchFreesItsEvents(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	ctx, cancel := context.WithCancel(t.Context())
	source := m.source(nvml.Options{PollInterval: time.Hour})
	require.NoError(t, source.Watch(ctx, func(card.Event) { cancel() }))
	require.Equal(t, 1, m.frees)
	source.Close()

	// After the end of the session there is nothing to free.
	ctx, cancel = context.WithCancel(t.Context())
	require.NoError(t, source.Watch(ctx, func(card.Event) {
		source.Close()
		cancel()
	}))
	require.Equal(t, 1, m.frees)
	require.Equal(t, 2, m.shutdowns)
}
