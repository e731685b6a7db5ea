// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/kube"
)

// What is promised is exact to two points over a second (make bench-sharing measures
// that). The tests are content with less, since the whole node, the pods and the tests
// have the same few processors: then cards idle, or wait, for want of somebody who tells
// them what to do, and those who are to have more lose more.
const (
	// points that a part may be off.
	points = 5.0
	// busy is the least percent of the time that a card is used where all of it may be.
	busy = 60.0
	// tries are how often a part is measured, at most, until it is what it should be.
	tries = 6
	// nothing is more, in percent, than is had by those who are to have nothing: what they
	// have begun is not interrupted.
	nothing = 10.0
)

// A=20 and B=30 on a card; later C=50 and one who asked for nothing. Card 0 has them with
// guarantees and bursts, card 1 with fixed shares.
func TestPodsGetTheComputeThatTheirPoliciesPromise(t *testing.T) {
	w := newWorkers(t, "compute")
	w.add(t, map[string]resourceapi.DeviceRequest{
		"burst-a": part(0, "burst.tranche.dev", 20), "burst-b": part(0, "burst.tranche.dev", 30),
		"fixed-a": part(1, "fixed.tranche.dev", 20), "fixed-b": part(1, "fixed.tranche.dev", 30),
	})
	burst, fixed := w.card(t, "burst-a"), w.card(t, "fixed-a")
	require.NotEqual(t, burst, fixed)

	// A has a context, and sleeps.
	w.prepare(t, map[string]string{"burst-a": "", "burst-b": "", "fixed-a": "", "fixed-b": ""})
	w.begin(t, "burst-b", "fixed-b")
	w.becomeFixed(t, fixed, map[string]float64{"fixed-b": 30})
	w.becomes(t, burst, atLeast("burst-b", busy))

	// Both want compute: what was lent is handed back, and what nobody has a right to is
	// divided as the rest is.
	w.begin(t, "burst-a", "fixed-a")
	w.becomeFixed(t, fixed, map[string]float64{"fixed-a": 20, "fixed-b": 30})
	w.becomes(t, burst, ratio(map[string]float64{"burst-a": 40, "burst-b": 60}))

	// C arrives, and so do those who ask for nothing.
	w.add(t, map[string]resourceapi.DeviceRequest{
		"burst-c": part(0, "burst.tranche.dev", 50), "burst-rest": part(0, "besteffort.tranche.dev", 0),
		"fixed-rest": part(1, "besteffort.tranche.dev", 0),
	})
	w.prepare(t, map[string]string{"burst-c": "", "burst-rest": "", "fixed-rest": ""})
	w.begin(t, "burst-c", "fixed-rest")
	w.becomes(t, burst, ratio(map[string]float64{"burst-a": 20, "burst-b": 30, "burst-c": 50}))
	w.becomes(t, fixed, ratio(map[string]float64{"fixed-a": 20, "fixed-b": 30, "fixed-rest": 50}))

	// All of the card is guaranteed: nothing is left for the one who has no guarantee.
	w.begin(t, "burst-rest")
	for _, had := range w.becomes(t, burst, ratio(map[string]float64{"burst-a": 20, "burst-b": 30, "burst-c": 50})) {
		require.Less(t, had["burst-rest"], nothing)
	}
	w.requireAtWork(t)

	// Processes that are killed while they have the card, or wait for it, hinder nobody.
	w.kill(t, "burst-a", "burst-c")
	w.becomes(t, burst, atLeast("burst-b", busy))
	w.requireCeilingFollows(t, burst)
	w.requireAtWork(t)
	w.requireStatus(t, "fixed-a", 20)
	w.requireStatus(t, "fixed-b", 30)
}

// requireCeilingFollows changes how much burst-b may use, while it does.
func (w *workers) requireCeilingFollows(t *testing.T, device string) {
	t.Helper()
	claim := w.claims(t, "burst-b")[0].Name
	set := func(arg string, want card.Percent, check func(parts) error) {
		label(t, "-n", w.name, "resourceclaim", claim, arg)
		require.Eventually(t, func() bool { return w.document(t, "burst-b").BurstCeiling == want }, patience, tick)
		w.becomes(t, device, check)
	}
	set(v1alpha1.LabelBurstCeiling+"=50", 50, ratio(map[string]float64{"burst-b": 50, "burst-rest": 50}))
	set(v1alpha1.LabelBurstCeiling+"-", 100, atLeast("burst-b", busy))
}

// requireStatus waits until the claim of a pod with a fixed share says what it got.
func (w *workers) requireStatus(t *testing.T, pod string, cores float64) {
	t.Helper()
	var claim *resourceapi.ResourceClaim
	require.Eventually(t, func() bool {
		claim = w.claims(t, pod)[0]
		return len(claim.Status.Devices) > 0 && claim.Status.Devices[0].Data != nil
	}, patience, time.Second, "the claim of pod %s says what it got", pod)
	require.Len(t, claim.Status.Devices, 1)
	device, result := claim.Status.Devices[0], claim.Status.Allocation.Devices.Results[0]
	require.Equal(t, []string{result.Driver, result.Pool, result.Device, string(*result.ShareID)},
		[]string{device.Driver, device.Pool, device.Device, *device.ShareID})
	var status v1alpha1.ShareStatus
	require.NoError(t, json.Unmarshal(device.Data.Raw, &status))
	require.Equal(t, v1alpha1.KindShareStatus, status.Kind)
	require.Equal(t, share.Fixed, status.Policy)
	require.InDelta(t, cores, float64(status.GrantedPercent), 0)
	require.Nil(t, status.BurstCeilingPercent)
	require.Positive(t, status.WantedSeconds)
	require.InDelta(t, cores, status.EntitledPercent, points)
	require.InDelta(t, cores, status.AchievedPercent, points, "the arbiter measures what the card says")
	t.Logf("pod %s: %s", pod, device.Data.Raw)
	require.True(t, slices.ContainsFunc(claim.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == kube.Arbiter && m.Operation == metav1.ManagedFieldsOperationApply
	}), "%v", claim.ManagedFields)
}

// Both ledgers of a card are full. The online pod computes for 1.5 s of every 3.
func TestOfflinePodsComputeWhileOnlineOnesSleep(t *testing.T) {
	w := newWorkers(t, "offline")
	w.add(t, map[string]resourceapi.DeviceRequest{
		"online":  part(0, "online.tranche.dev", 100),
		"offline": onCard(0, kube.Request("gpu", "offline.tranche.dev", 1, kube.Amounts{"cores": "0", "offlineCores": "100", "memory": "2Gi"})),
	})
	device := w.card(t, "online")
	require.Equal(t, device, w.card(t, "offline"))
	w.prepare(t, map[string]string{"online": "on=1500 off=1500", "offline": "seconds=9"})
	epoch := w.begin(t, "online", "offline")

	// How much it has at worst and at best: a busy machine may keep the online one from its
	// card, which is the offline one's then.
	least, most := 100.0, 0.0
	for begin := 0; begin < 9000; begin += 3000 {
		had := w.parts(t, device, between(begin+200, begin+1400).after(epoch))
		require.Greater(t, had["online"], had["offline"])
		least = min(least, had["offline"])
		had = w.parts(t, device, between(begin+1700, begin+2900).after(epoch))
		require.Zero(t, had["online"])
		most = max(most, had["offline"])
	}
	require.Less(t, least, nothing, "it stops when the other has work")
	require.Greater(t, most, busy, "it goes on when the other has none")
	// It goes on where it stopped: nothing was lost, and nothing done twice.
	end := w.programs["offline"].next(t)
	launches := number(t, fields(end)["launches"])
	require.Empty(t, w.programs["offline"].complaint())
	whole := span{epoch, monotonic(t)}
	require.InEpsilon(t, float64(launches)*float64(kernel), float64(sum(w.runs(t, device, whole)["offline"])), 0.02, end)
}

// The arbiter and the driver are replaced, and the arbiter is killed, while pods compute.
func TestPodsKeepToTheirComputeWhileWhatRulesThemIsReplaced(t *testing.T) {
	w := newWorkers(t, "ruled")
	w.add(t, map[string]resourceapi.DeviceRequest{
		"fixed-a": part(0, "fixed.tranche.dev", 20), "fixed-b": part(0, "fixed.tranche.dev", 30),
		"burst-a": part(1, "burst.tranche.dev", 20), "burst-b": part(1, "burst.tranche.dev", 30), "burst-c": part(1, "burst.tranche.dev", 50),
	})
	fixed, burst := w.card(t, "fixed-a"), w.card(t, "burst-a")
	w.prepare(t, map[string]string{"fixed-a": "", "fixed-b": "", "burst-a": "", "burst-b": "", "burst-c": ""})
	w.begin(t, w.inPods()...)
	rollout := func(what string) func() {
		return func() {
			_, err := kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "restart", "daemonset/"+what)
			require.NoError(t, err)
			require.NoError(t, kube.WaitForDriver(t.Context()))
		}
	}
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"driver updated", rollout(kube.DaemonSet)},
		{"arbiter updated", rollout(kube.Arbiter)},
		// Its container is a new one now, which kubelet starts again at once.
		{"arbiter killed", func() {
			pids := processesOf(t, kube.Arbiter)
			require.Len(t, pids, 1)
			require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
			require.Eventually(t, func() bool {
				now := processesOf(t, kube.Arbiter)
				return len(now) == 1 && now[0] != pids[0]
			}, patience, tick)
			require.NoError(t, kube.WaitForDriver(t.Context()))
		}},
	} {
		t.Run(change.name, func(t *testing.T) {
			begin := monotonic(t)
			change.do()
			// Nobody runs free meanwhile: not for a second.
			for now := monotonic(t); begin < now; begin += time.Second {
				had := w.parts(t, fixed, between(0, 1000).after(begin))
				require.Less(t, had["fixed-a"], 20+points)
				require.Less(t, had["fixed-b"], 30+points)
			}
			w.becomeFixed(t, fixed, map[string]float64{"fixed-a": 20, "fixed-b": 30})
			w.becomes(t, burst, ratio(map[string]float64{"burst-a": 20, "burst-b": 30, "burst-c": 50}))
			w.requireAtWork(t)
		})
	}
}
