// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/tests/kube"
)

// urgent is a priority that others give way to, all of which have none.
const urgent = "e2e-urgent"

// newUrgent is newFakes with one node of one card of 24 GiB, and the priority.
func newUrgent(t *testing.T, name string) fakes {
	t.Helper()
	classes := client.SchedulingV1().PriorityClasses()
	_, err := classes.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, classes.Delete(context.Background(), urgent, metav1.DeleteOptions{})) })
	return newFakes(t, name, 1, 1)
}

func (f fakes) urgent(name, template string) *corev1.Pod {
	pod := f.sleeper(name, template)
	pod.Spec.PriorityClassName = urgent
	return pod
}

// share makes a template of that name for a share of the card.
func (f fakes) share(t *testing.T, name, cores, memory string) {
	t.Helper()
	f.template(t, name, kube.Request("gpu", "share.tranche.dev", 1, kube.Share(cores, memory)))
}

// requireGone and requireThere say who had to give way.
func (f fakes) requireGone(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		_, err := client.CoreV1().Pods(f.name).Get(t.Context(), pod, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "pod %s is gone: %v", pod, err)
	}
}

func (f fakes) requireThere(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		p, err := client.CoreV1().Pods(f.name).Get(t.Context(), pod, metav1.GetOptions{})
		require.NoError(t, err)
		require.Nil(t, p.DeletionTimestamp, "pod %s stays", pod)
		require.Equal(t, corev1.PodRunning, p.Status.Phase)
	}
}

func TestPlacementEvictsOfflineWorkBeforeOthers(t *testing.T) {
	f := newUrgent(t, "evicts-offline")
	f.template(t, "online", kube.Request("gpu", "online.tranche.dev", 1, kube.Share("40", "10Gi")))
	f.template(t, "offline", kube.Request("gpu", "offline.tranche.dev", 1, kube.Amounts{"cores": "0", "offlineCores": "40", "memory": "10Gi"}))
	f.share(t, "wish", "20", "8Gi")
	f.place(t, f.sleeper("online", "online"), f.sleeper("offline", "offline"))
	f.place(t, f.urgent("urgent", "wish"))
	f.requireGone(t, "offline")
	f.requireThere(t, "online")
	requireNoOverCommitment(t)
}

func TestPlacementEvictsAsFewAsPossible(t *testing.T) {
	f := newUrgent(t, "evicts-few")
	f.share(t, "small", "10", "4Gi")
	f.share(t, "large", "10", "12Gi")
	f.share(t, "wish", "20", "10Gi")
	f.place(t, f.sleeper("small-1", "small"), f.sleeper("large", "large"), f.sleeper("small-2", "small"))
	f.place(t, f.urgent("urgent", "wish"))
	f.requireGone(t, "large")
	f.requireThere(t, "small-1", "small-2")
}

func TestPlacementEvictsNobodyForPodsThatAreNoMoreUrgent(t *testing.T) {
	f := newUrgent(t, "evicts-nobody")
	f.share(t, "most", "50", "20Gi")
	f.place(t, f.sleeper("first", "most"))
	f.create(t, f.sleeper("second", "most"))
	require.Contains(t, f.refused(t, "second"), "no card has 50 percent compute and 20 GiB free")
	f.requireThere(t, "first")
}

// A claim that several pods use is not taken from one of them.
func TestPlacementLeavesClaimsOfSeveralPodsAlone(t *testing.T) {
	f := newUrgent(t, "shared-stays")
	f.claim(t, "shared", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "20Gi")))
	for _, name := range []string{"one", "two"} {
		pod := f.sleeper(name, "unused")
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("shared")}}
		f.place(t, pod)
	}
	f.share(t, "wish", "20", "8Gi")
	f.create(t, f.urgent("urgent", "wish"))
	require.Contains(t, f.refused(t, "urgent"), "no card has 20 percent compute and 8 GiB free")
	f.requireThere(t, "one", "two")
}

// While its victims end, nobody less urgent takes what a pod is waiting for.
func TestPlacementKeepsTheRoomOfWhoIsNominated(t *testing.T) {
	const finalizer = "e2e.tranche.dev/slow"
	f := newUrgent(t, "nominated")
	f.share(t, "victim", "10", "16Gi")
	f.share(t, "wish", "10", "20Gi")
	f.share(t, "small", "10", "6Gi")
	victim := f.sleeper("victim", "victim")
	victim.Finalizers = []string{finalizer}
	f.place(t, victim)
	release := func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(f.name).Patch(ctx, "victim", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	}
	t.Cleanup(func() { _ = release(context.Background()) }) // where the test ends early

	f.create(t, f.urgent("urgent", "wish"))
	require.Eventually(t, func() bool {
		pod, err := client.CoreV1().Pods(f.name).Get(t.Context(), "urgent", metav1.GetOptions{})
		return err == nil && pod.Status.NominatedNodeName == f.nodes[0]
	}, patience, tick, "the pod is nominated")
	f.create(t, f.sleeper("small", "small"))
	require.NotEmpty(t, f.refused(t, "small"), "8 GiB are free, but somebody waits for them")
	require.NoError(t, release(t.Context()))
	f.ready(t, "urgent")
	require.NotContains(t, f.onNodes(t), "small")
	requireNoOverCommitment(t)
}

// Where programs run, they end before the next one begins.
func TestPlacementEvictsOnTheRealNode(t *testing.T) {
	f := newUrgent(t, "evicts-really")
	f.template(t, "whole", kube.Request("gpu", "card.tranche.dev", cards, nil))
	f.share(t, "wish", "30", "4Gi")
	real := map[string]string{corev1.LabelHostname: os.Getenv("TRANCHE_CLUSTER_NODE")}
	low := f.sleeper("low", "whole")
	low.Spec.NodeSelector = real
	f.create(t, low)
	f.ready(t, "low")
	pod := f.urgent("urgent", "wish")
	pod.Spec.NodeSelector = real
	f.place(t, pod)
	f.requireGone(t, "low")
	require.Len(t, f.shareFiles(t, "urgent", "main"), 1)
}
