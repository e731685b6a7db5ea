// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func TestCardsArePublishedAndReadinessWaitsForKubelet(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	d := m.start(t)
	eventually(t, "two cards are published", m.api.hasCards(t, 2))
	require.ErrorIs(t, d.Ready(), driver.ErrNotRegistered, "published is not enough: kubelet must know the process")
	info := m.register(t, "pod-1", true)
	require.Equal(t, "DRAPlugin", info.GetType())
	require.Equal(t, driver.Name, info.GetName())
	require.Equal(t, m.root+"/plugins/gpu.tranche.dev/dra-pod-1.sock", info.GetEndpoint())
	eventually(t, "ready", func() bool { return d.Ready() == nil })
	slice := m.api.slices(t)[0]
	require.Equal(t, driver.Name, slice.Spec.Driver)
	require.Equal(t, node, slice.Spec.Pool.Name)
	require.Equal(t, node, *slice.Spec.NodeName)
	require.EqualValues(t, "node-uid", slice.OwnerReferences[0].UID)
	for _, device := range m.api.devices(t) {
		require.True(t, isShared(device))
	}
}

func TestReadinessWaitsForTheSlices(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.api.away = apierrors.NewServiceUnavailable("starting")
	d := m.start(t)
	m.register(t, "pod-1", true)
	require.ErrorIs(t, d.Ready(), driver.ErrNotPublished)
	m.api.set(func(a *apiServer) { a.away = nil })
	eventually(t, "ready once the API server is there", func() bool { return d.Ready() == nil })
	require.Len(t, m.api.devices(t), 2)
}

func TestARefusedRegistrationIsNotReady(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	d := m.start(t)
	m.register(t, "pod-1", true)
	eventually(t, "ready", func() bool { return d.Ready() == nil })
	m.register(t, "pod-1", false)
	require.ErrorIs(t, d.Ready(), driver.ErrNotRegistered)
}

func TestSlicesComeBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(t)
	eventually(t, "published", m.api.hasCards(t, 2))
	t.Run("after someone deleted them", func(t *testing.T) {
		for range 3 {
			m.api.deleteSlices(t)
			eventually(t, "published again", m.api.hasCards(t, 2))
		}
	})
	t.Run("after each of ten restarts of kubelet, which deletes them and registers the driver again", func(t *testing.T) {
		for range 10 {
			m.api.deleteSlices(t)
			m.register(t, "pod-1", true)
			eventually(t, "published again", m.api.hasCards(t, 2))
		}
	})
	t.Run("after someone changed them", func(t *testing.T) {
		slice := m.api.slices(t)[0]
		slice.Spec.Devices = slice.Spec.Devices[:1]
		_, err := m.api.client.ResourceV1().ResourceSlices().Update(t.Context(), &slice, updated)
		require.NoError(t, err)
		eventually(t, "both cards again", m.api.hasCards(t, 2))
	})
	t.Run("after the API server was away, as soon as it is back", func(t *testing.T) {
		m.api.set(func(a *apiServer) { a.away = apierrors.NewInternalError(errors.New("restarting")) })
		m.cards.set(nil, fixture.Card(0))
		eventually(t, "the failure is counted", func() bool { return m.counts.of(&m.counts.published, "failed") > 2 })
		require.Len(t, m.api.devices(t), 2)
		m.api.set(func(a *apiServer) { a.away = nil })
		eventually(t, "one card", m.api.hasCards(t, 1))
	})
}

func TestARegistrationAsksForTheSlicesAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Timing.SyncDelay = time.Hour // nothing else brings them back
	m.start(t)
	eventually(t, "published", m.api.hasCards(t, 2))
	m.api.deleteSlices(t)
	eventually(t, "published again", func() bool {
		m.register(t, "pod-1", true) // the deletion may not have been seen by the first
		return m.api.hasCards(t, 2)()
	})
}

func TestEqualCardsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(t)
	eventually(t, "published", m.api.hasCards(t, 2))
	m.register(t, "pod-1", true)
	m.cards.set(nil, fixture.Card(1), fixture.Card(0)) // in another order
	listed := m.counts.of(&m.counts.listed, "done")
	eventually(t, "listed often", func() bool { return m.counts.of(&m.counts.listed, "done") > listed+5 })
	eventually(t, "compared again", func() bool { return m.counts.of(&m.counts.published, "done") > 1 })
	require.Equal(t, 1, m.api.written())
}

func TestCardsComeAndGo(t *testing.T) {
	t.Parallel()
	sick := fixture.Card(0)
	sick.Faults = []card.Fault{{Kind: "XidError", Message: "fell off the bus", Evict: true}}
	taints := func(m *machine) []resourceapi.DeviceTaint { return m.api.devices(t)[sick.DeviceName()].Taints }
	m := newMachine(t)
	m.cards = newCards()
	m.start(t)
	eventually(t, "an empty slice says that the driver is there", m.api.hasCards(t, 0))
	m.cards.set(nil, fixture.Card(0))
	eventually(t, "a card that came later", m.api.hasCards(t, 1))
	m.cards.set(nil, sick)
	eventually(t, "a taint for the fault", func() bool { return len(taints(m)) == 1 })
	require.Equal(t, resourceapi.DeviceTaintEffectNoExecute, taints(m)[0].Effect)
	require.Len(t, m.events.with("CardFaulty", string(sick.UUID), "XidError: fell off the bus", "the pods on it are stopped"), 1)
	worse := sick
	worse.Faults = append([]card.Fault{{Kind: "EccError"}}, sick.Faults...)
	m.cards.set(nil, worse)
	eventually(t, "what is new is told", func() bool { return len(m.events.with("CardFaulty", "EccError; XidError")) == 1 })
	require.Empty(t, m.events.with("CardRecovered"))
	m.cards.set(nil, fixture.Card(0))
	eventually(t, "no taint after recovery", func() bool { return len(taints(m)) == 0 })
	require.Len(t, m.events.with("CardFaulty"), 2, "listed many times, told once")
	require.Len(t, m.events.with("CardRecovered", string(sick.UUID)), 1)
	m.cards.set(nil)
	eventually(t, "a card that went", m.api.hasCards(t, 0))
}

func TestCardsStayPublishedWhileTheyCannotBeListed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.start(t)
	eventually(t, "published", m.api.hasCards(t, 2))
	m.cards.set(errors.New("driver is being replaced"))
	eventually(t, "the failure is counted", func() bool { return m.counts.of(&m.counts.listed, "failed") > 3 })
	m.api.deleteSlices(t)
	eventually(t, "the last good cards are still wanted", m.api.hasCards(t, 2))
	require.Len(t, m.events.with("CardsUnreadable", "driver is being replaced"), 1, "told once")
	m.cards.set(nil, fixture.Card(0))
	eventually(t, "what is there now", m.api.hasCards(t, 1))
}

func TestCardsThatCannotBeListedAtStartArePublishedLater(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Timing.Relist = time.Hour // a failure is not left for that long
	m.cards.err = errors.New("not yet")
	d := m.start(t)
	m.register(t, "pod-1", true)
	failed := m.counts.of(&m.counts.listed, "failed")
	eventually(t, "tried again", func() bool { return m.counts.of(&m.counts.listed, "failed") > failed+3 })
	require.ErrorIs(t, d.Ready(), driver.ErrNotPublished)
	require.ErrorContains(t, d.Ready(), "list cards: not yet", "what is in the way is told")
	require.Zero(t, m.counts.of(&m.counts.inSlice, "done"), "not knowing is not the same as none")
	require.Empty(t, m.api.slices(t))
	m.cards.mu.Lock()
	m.cards.err = nil // and nobody says so
	m.cards.mu.Unlock()
	eventually(t, "the cards", m.api.hasCards(t, 2))
	eventually(t, "ready", func() bool { return d.Ready() == nil })
}

func TestAnInstanceThatCannotListCardsWithdrawsNoneAndStopsTheUpdate(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	older := m.startAs(t, "old")
	m.register(t, "old", true)
	eventually(t, "the older one is ready", func() bool { return older.Ready() == nil })
	eventually(t, "published", m.api.hasCards(t, 2))
	m.cards = newCards()
	m.cards.err = errors.New("version mismatch")
	m.counts = &counts{}
	newer := m.startAs(t, "new")
	m.register(t, "new", true)
	eventually(t, "tried often", func() bool { return m.counts.of(&m.counts.listed, "failed") > 5 })
	require.ErrorIs(t, newer.Ready(), driver.ErrNotPublished)
	older.stop()
	require.NoError(t, older.wait())
	failed := m.counts.of(&m.counts.listed, "failed")
	eventually(t, "tried again", func() bool { return m.counts.of(&m.counts.listed, "failed") > failed+3 })
	require.Zero(t, m.counts.of(&m.counts.inSlice, "done"), "it has published nothing, not even none")
	require.Len(t, m.api.devices(t), 2)
	m.cards.set(nil)
	eventually(t, "it is known that there are none", m.api.hasCards(t, 0))
	eventually(t, "that is ready", func() bool { return newer.Ready() == nil })
}

func TestARegistrationIsNotForgottenInAPassThatFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ fail, mend func(*machine) }{
		"the API server does not tell its version": {
			fail: func(m *machine) { m.api.set(func(a *apiServer) { a.version = errors.New("overloaded") }) },
			mend: func(m *machine) { m.api.set(func(a *apiServer) { a.version = nil }) },
		},
		"cards cannot be listed": {
			fail: func(m *machine) { m.cards.set(errors.New("busy")) },
			mend: func(*machine) {}, // the last good cards do
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.config.Timing.SyncDelay = time.Hour // nothing else compares
			m.api.setVersion("v1.35.0")           // which is looked at every time
			m.start(t)
			passes := func() int {
				return m.counts.of(&m.counts.listed, "done") + m.counts.of(&m.counts.listed, "failed")
			}
			twice := func(what string) {
				before := passes()
				eventually(t, what, func() bool { return passes() > before+2 })
			}
			eventually(t, "published", func() bool { return m.api.hasCards(t, 2)() && m.counts.of(&m.counts.published, "done") > 0 })
			tc.fail(m)
			twice("nothing else is under way")
			compared := m.counts.of(&m.counts.published, "done")
			m.register(t, "pod-1", true)
			twice("the registration was seen")
			tc.mend(m)
			eventually(t, "compared with the API server", func() bool { return m.counts.of(&m.counts.published, "done") > compared })
		})
	}
}

func TestWholeCardsWhereSharingIsImpossible(t *testing.T) {
	t.Parallel()
	dropSharing := func(d *resourceapi.Device) {
		d.AllowMultipleAllocations = nil
		for name, c := range d.Capacity {
			c.RequestPolicy = nil
			d.Capacity[name] = c
		}
	}
	for name, tc := range map[string]struct {
		version string
		force   bool
		drop    func(*resourceapi.Device)
		shared  bool
		event   []string
	}{
		"Kubernetes 1.36 shares":                       {version: "v1.36.0", shared: true},
		"a distribution's version of 1.36 shares":      {version: "v1.36.2-gke.100", shared: true},
		"a pre-release of 1.36 shares":                 {version: "v1.36.0-rc.1", shared: true},
		"a version that cannot be read is trusted":     {version: "main", shared: true},
		"Kubernetes 1.35 does not":                     {version: "v1.35.4+k3s1", event: []string{"CardsNotShared", "v1.35.4+k3s1", "upgrade to 1.36"}},
		"Kubernetes 1.35 does when forced":             {version: "v1.35.4", force: true, shared: true},
		"an API server without the feature does not":   {version: "v1.37.0", drop: dropSharing, event: []string{"CardsNotShared", "DRAConsumableCapacity", "kube-apiserver"}},
		"nor when forced: the fields cannot be stored": {version: "v1.35.0", force: true, drop: dropSharing, event: []string{"CardsNotShared", "DRAConsumableCapacity"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.api.setVersion(tc.version)
			m.config.ForceSharing = tc.force
			if tc.drop != nil {
				m.api.drop = tc.drop
			}
			m.start(t)
			eventually(t, "published as it should be", func() bool {
				if !m.api.hasCards(t, 2)() || len(tc.event) > 0 && len(m.events.with(tc.event...)) == 0 {
					return false
				}
				for _, d := range m.api.devices(t) {
					_, slots := d.Capacity["slots"]
					if isShared(d) != tc.shared || slots != tc.shared {
						return false
					}
				}
				return true
			})
			if tc.event == nil {
				require.Empty(t, m.events.with("CardsNotShared"))
			}
		})
	}
}

func TestSharingBeginsWhenTheClusterIsUpgraded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.api.set(func(a *apiServer) { a.version = errors.New("not authorized yet") })
	d := m.start(t)
	m.register(t, "pod-1", true)
	eventually(t, "cards were looked at", func() bool { return m.counts.of(&m.counts.listed, "done") > 2 })
	require.Empty(t, m.api.slices(t), "whether to share is not known yet")
	m.api.setVersion("v1.35.1")
	m.api.set(func(a *apiServer) { a.version = nil })
	shared := func(want bool) func() bool {
		return func() bool {
			device, found := m.api.devices(t)[fixture.Card(0).DeviceName()]
			return found && isShared(device) == want
		}
	}
	eventually(t, "whole cards", shared(false))
	m.api.setVersion("v1.36.1")
	eventually(t, "shared cards", shared(true))
	require.NoError(t, d.Ready())
}

func TestDroppedTaintsAreToldAndTheCardsStay(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	sick := fixture.Card(0)
	sick.Faults = []card.Fault{{Kind: "XidError"}}
	m.cards = newCards(sick)
	m.api.drop = func(d *resourceapi.Device) { d.Taints = nil }
	m.start(t)
	eventually(t, "told", func() bool { return len(m.events.with("FeatureDisabled", "DRADeviceTaints")) > 0 })
	require.True(t, isShared(m.api.devices(t)[sick.DeviceName()]))
}

func TestSlicesThatTheAPIServerRefusesAreTold(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.api.away = apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceSlice"}, "x", nil)
	m.api.set(func(a *apiServer) { a.away = nil })
	refuse := apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceSlice"}, "x", nil)
	m.api.client.PrependReactor("create", "resourceslices", failWith(refuse))
	m.start(t)
	eventually(t, "told", func() bool { return len(m.events.with("CardsRefused", "is invalid")) > 0 })
}

func TestACardThatAnotherPluginServesIsLeftOut(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first, second := fixture.Card(0), fixture.Card(1)
	m.plugins.devices = map[string][]string{
		"example.com/nic": {"eth0"},
		"nvidia.com/gpu":  {string(first.UUID) + "::3"},
	}
	m.start(t)
	eventually(t, "the other card only", m.api.hasCards(t, 1))
	require.Contains(t, m.api.devices(t), second.DeviceName())
	require.Len(t, m.events.with("CardServedByOthers", string(first.UUID), "nvidia.com/gpu"), 1)

	m.plugins.set(nil, errors.New("kubelet restarts"))
	listed := m.counts.of(&m.counts.listed, "done")
	eventually(t, "looked at again", func() bool { return m.counts.of(&m.counts.listed, "done") > listed+3 })
	require.Len(t, m.api.devices(t), 1, "not knowing is not the same as free")

	m.plugins.set(map[string][]string{}, nil)
	eventually(t, "both cards once the plugin is gone", m.api.hasCards(t, 2))
	m.plugins.set(map[string][]string{"nvidia.com/gpu": {string(first.UUID)}}, nil)
	eventually(t, "one card when it is back", m.api.hasCards(t, 1))
	require.Len(t, m.events.with("CardServedByOthers"), 2)
}

func TestNotesOnCardsAreToldOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	twin := fixture.Card(1)
	twin.UUID = fixture.Card(0).UUID
	m.cards = newCards(fixture.Card(0), twin)
	m.start(t)
	eventually(t, "one of the two", m.api.hasCards(t, 1))
	listed := m.counts.of(&m.counts.listed, "done")
	eventually(t, "listed again", func() bool { return m.counts.of(&m.counts.listed, "done") > listed+3 })
	require.Len(t, m.events.with("CardPublishedDifferently", fmt.Sprint(twin.UUID)), 1)
}
