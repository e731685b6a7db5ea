// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/sim"
)

const (
	oneCard   = "cards:\n- model: T4\n"
	twoCards  = "cards:\n- {model: T4, count: 2}\n"
	oneFaulty = "cards:\n- {model: T4, faults: [{kind: XidError, message: Xid 79, evict: true}]}\n"
)

// replace puts a new file in the place of the old one at once.
func replace(t *testing.T, path, text string) {
	t.Helper()
	tmp := path + ".tmp"
	require.NoError(t, os.WriteFile(tmp, []byte(text), 0o600))
	require.NoError(t, os.Rename(tmp, path))
}

func TestCards(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text  string
		cards int
		err   error
		says  string
	}{
		"no cards":             {text: "cards: []\n"},
		"two cards":            {text: twoCards, cards: 2},
		"an absent card":       {text: "cards:\n- model: T4\n- {model: T4, absent: true}\n", cards: 1},
		"a listing that fails": {text: "listError: NVML is unhappy\n" + oneCard, err: sim.ErrListing, says: "NVML is unhappy"},
		"a bad edit names file and field": {
			text: "cards:\n- model: T5\n", err: sim.ErrFleet, says: "fleet.yaml: decode fleet: cards[0].model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "fleet.yaml")
			replace(t, path, tc.text)
			cards, err := sim.New(sim.Options{Path: path, NodeName: "n"}).Cards(t.Context())
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				require.ErrorContains(t, err, tc.says)
				require.Nil(t, cards)
				return
			}
			require.NoError(t, err)
			require.Len(t, cards, tc.cards)
		})
	}
}

func TestNoFileIsNoCards(t *testing.T) {
	t.Parallel()
	cards, err := sim.New(sim.Options{Path: filepath.Join(t.TempDir(), "not", "there.yaml")}).Cards(t.Context())
	require.NoError(t, err)
	require.Empty(t, cards)
}

func TestAFileThatCannotBeReadIsNotNoCards(t *testing.T) {
	t.Parallel()
	_, err := sim.New(sim.Options{Path: t.TempDir()}).Cards(t.Context())
	require.ErrorIs(t, err, sim.ErrFleet)
}

func TestAnEndedContextListsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sim.New(sim.Options{Path: filepath.Join(t.TempDir(), "f")}).Cards(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestReserveIsTakenFromKnownMemoryOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	replace(t, path, "cards:\n- memory: 1Gi\n- memory: 0\n- memory: 100Mi\n")
	cards, err := sim.New(sim.Options{Path: path, Reserve: 200}).Cards(t.Context())
	require.NoError(t, err)
	require.Equal(t, card.MiB(824), cards[0].Memory)
	require.Zero(t, cards[1].Memory)
	require.Zero(t, cards[2].Memory)
}

func TestDeviceNode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	replace(t, path, `
cards:
- {model: T4, uuid: good}
- {model: T4, uuid: bad, minor: 7, deviceNodeMissing: true}
- {model: T4, uuid: gone, absent: true}
`)
	source := sim.New(sim.Options{Path: path})
	require.NoError(t, source.DeviceNode(t.Context(), "good"))
	err := source.DeviceNode(t.Context(), "bad")
	require.ErrorIs(t, err, sim.ErrDeviceNodeMissing)
	require.ErrorContains(t, err, "/dev/nvidia7")
	require.ErrorIs(t, source.DeviceNode(t.Context(), "gone"), sim.ErrUnknownCard)
	require.ErrorIs(t, source.DeviceNode(t.Context(), "other"), sim.ErrUnknownCard)
	replace(t, path, "cards: [\n")
	require.ErrorIs(t, source.DeviceNode(t.Context(), "good"), sim.ErrFleet)
}

// watch starts a Watch and gives its events. The interval is so long that only
// the kernel's events can wake it.
func watch(t *testing.T, o sim.Options) (*sim.Source, <-chan card.Event) {
	t.Helper()
	if o.PollInterval == 0 {
		o.PollInterval = time.Hour
	}
	source := sim.New(o)
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

func TestWatchTellsWhatAListingWouldTell(t *testing.T) {
	t.Parallel()
	uuids := decode(t, twoCards).Present("n")
	first, second := uuids[0].UUID, uuids[1].UUID
	for name, tc := range map[string]struct {
		before, after string
		want          card.Event
	}{
		"a card comes":               {oneCard, twoCards, card.Event{Reason: "added", Card: second}},
		"a card goes":                {twoCards, oneCard, card.Event{Reason: "removed", Card: second}},
		"a card fails":               {oneCard, oneFaulty, card.Event{Reason: "fault", Card: first}},
		"a card is well again":       {oneFaulty, oneCard, card.Event{Reason: "recovery", Card: first}},
		"its memory becomes unknown": {oneCard, "cards:\n- {model: T4, memory: '0'}\n", card.Event{Reason: "changed", Card: first}},
		"listing begins to fail":     {oneCard, "listError: x\n" + oneCard, card.Event{Reason: "fault"}},
		"listing works again":        {"listError: x\n" + oneCard, twoCards, card.Event{Reason: "recovery"}},
		"listing fails otherwise":    {"listError: x\n" + oneCard, "listError: y\n" + oneCard, card.Event{Reason: "fault"}},
		"a bad edit":                 {oneCard, "cards:\n- model: T5\n", card.Event{Reason: "fault"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "fleet.yaml")
			replace(t, path, tc.before)
			_, events := watch(t, sim.Options{Path: path, NodeName: "n"})
			replace(t, path, tc.after)
			require.Equal(t, tc.want, next(t, events))
		})
	}
}

func TestCardsThatComeLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "etc", "tranche")
	path := filepath.Join(dir, "fleet.yaml")
	source, events := watch(t, sim.Options{Path: path})
	for range 3 {
		require.NoError(t, os.MkdirAll(dir, 0o750))
		replace(t, path, oneCard)
		require.Equal(t, "added", next(t, events).Reason)
		cards, err := source.Cards(t.Context())
		require.NoError(t, err)
		require.Len(t, cards, 1)

		// The directory itself may go and come again.
		require.NoError(t, os.RemoveAll(filepath.Dir(dir)))
		require.Equal(t, "removed", next(t, events).Reason)
	}
}

// kubelet puts a ConfigMap's files behind a link to a directory, and changes all
// of them at once by replacing the link.
func TestMountedConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	publish := func(version, text string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "fleet.yaml"), []byte(text), 0o600))
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..1", oneCard)
	path := filepath.Join(dir, "fleet.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "fleet.yaml"), path))
	_, events := watch(t, sim.Options{Path: path, NodeName: "n"})
	publish("..2", oneFaulty)
	require.Equal(t, "fault", next(t, events).Reason)
	publish("..3", oneCard)
	require.Equal(t, "recovery", next(t, events).Reason)
}

// Some file systems give no events, here because the file is elsewhere.
func TestPollingFindsWhatNoEventTells(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	replace(t, elsewhere, oneCard)
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.Symlink(elsewhere, path))
	_, events := watch(t, sim.Options{Path: path, PollInterval: time.Millisecond})
	replace(t, elsewhere, twoCards)
	require.Equal(t, "added", next(t, events).Reason)
}

func TestChangesWithoutMeaningAreNotTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "fleet.yaml")
	replace(t, path, oneCard)
	_, events := watch(t, sim.Options{Path: path})
	replace(t, path, "# the same\n"+oneCard)
	replace(t, filepath.Join(dir, "other.yaml"), twoCards)
	replace(t, path, twoCards)
	require.Equal(t, "added", next(t, events).Reason, "the first event is of the change that matters")
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	source := sim.New(sim.Options{Path: filepath.Join(t.TempDir(), "fleet.yaml")})
	require.NoError(t, source.Watch(ctx, func(card.Event) { cancel() }))
}
