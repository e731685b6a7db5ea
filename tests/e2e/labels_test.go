// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/kube"
)

// label sets labels of an object ("name=value"), or removes one ("name-").
func label(t *testing.T, args ...string) {
	t.Helper()
	out, err := kube.Kubectl(t.Context(), append([]string{"label", "--overwrite"}, args...)...)
	require.NoError(t, err, out)
}

// document is the share.json that the pod's only container sees of its only share.
func (n team) document(t *testing.T, pod string) cdi.ShareDocument {
	t.Helper()
	doc, err := cdi.ParseShareFile([]byte(n.inside(t, pod, "main", "cat /run/tranche/*/share.json")))
	require.NoError(t, err)
	return doc
}

func TestTheBurstCeilingOfARunningPodFollowsItsClaimsLabel(t *testing.T) {
	n := newTeam(t, "ceiling")
	n.pod(t, "p", kube.Request("gpu", "burst.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
	claim := n.claims(t, "p")[0]
	require.EqualValues(t, 100, n.document(t, "p").BurstCeiling)
	becomes := func(percent int) {
		require.Eventually(t, func() bool { return int(n.document(t, "p").BurstCeiling) == percent }, patience, tick, "the ceiling becomes %d", percent)
	}
	set := func(args ...string) {
		label(t, append([]string{"-n", n.name, "resourceclaim", claim.Name}, args...)...)
	}
	set(v1alpha1.LabelBurstCeiling + "=60")
	becomes(60)

	// A value that cannot be is told to the claim's owner, and changes nothing.
	set(v1alpha1.LabelBurstCeiling + "=20")
	require.Eventually(t, func() bool {
		events, err := client.CoreV1().Events(n.name).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(claim.UID)})
		require.NoError(t, err)
		for _, e := range events.Items {
			if e.Reason == "BurstCeilingRefused" && strings.Contains(e.Message, "must not be below the guaranteed cores of 30") {
				return true
			}
		}
		return false
	}, patience, tick, "an event says why")
	becomes(60)

	// The driver that comes next knows what was set.
	set(v1alpha1.LabelBurstCeiling + "=70")
	becomes(70)
	_, err := kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "restart", "daemonset/"+kube.DaemonSet)
	require.NoError(t, err)
	_, err = kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "status", "daemonset/"+kube.DaemonSet, "--timeout=2m")
	require.NoError(t, err)
	require.EqualValues(t, 70, n.document(t, "p").BurstCeiling)
	set(v1alpha1.LabelBurstCeiling + "-")
	becomes(100)

	pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount, "no container was started again for that")
}

func TestAClaimThatIsMadeWithTheLabelHasItsCeilingFromTheStart(t *testing.T) {
	n := newTeam(t, "ceiling-at-once")
	template := kube.Template("gpu", kube.Request("gpu", "weighted.tranche.dev", 1, kube.Share("30", "4Gi")))
	template.Spec.Labels = map[string]string{v1alpha1.LabelBurstCeiling: "50"}
	_, err := client.ResourceV1().ResourceClaimTemplates(n.name).Create(t.Context(), template, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := kube.Sleeper("p")
	kube.Use(pod, 0, "gpu", "gpu")
	n.create(t, pod)
	n.ready(t, "p")
	require.EqualValues(t, 50, n.document(t, "p").BurstCeiling)
}

func TestTheNodesLabelChoosesThePolicyOfSharesThatNameNone(t *testing.T) {
	n := newTeam(t, "default-policy")
	node := os.Getenv("TRANCHE_CLUSTER_NODE")
	request := kube.Request("gpu", "share.tranche.dev", 1, kube.Share("10", "1Gi"))
	n.pod(t, "before", request)
	n.ready(t, "before")
	require.Equal(t, share.GuaranteedBurst, n.document(t, "before").Policy)

	t.Cleanup(func() {
		_, _ = kube.Kubectl(context.Background(), "label", "node", node, v1alpha1.LabelDefaultPolicy+"-")
	})
	label(t, "node", node, v1alpha1.LabelDefaultPolicy+"="+string(share.Fixed))
	// The driver may hear of it a moment after the first of these pods starts.
	var got share.Policy
	for i := 0; i < 5 && got != share.Fixed; i++ {
		name := fmt.Sprint("during-", i)
		n.pod(t, name, request)
		n.ready(t, name)
		got = n.document(t, name).Policy
	}
	require.Equal(t, share.Fixed, got)
	require.Equal(t, share.GuaranteedBurst, n.document(t, "before").Policy, "who runs keeps what it has")
	n.pod(t, "own", kube.Request("gpu", "weighted.tranche.dev", 1, kube.Share("10", "1Gi")))
	n.ready(t, "own")
	require.Equal(t, share.NativeBurst, n.document(t, "own").Policy, "a claim's own policy wins")

	_, report := examine(t)
	found := about(report, "default policy")
	require.Len(t, found, 1)
	require.Equal(t, doctor.OK, found[0].Level)
	require.Equal(t, "fixed-share, for shares that name none (the node's label tranche.dev/default-policy)", found[0].Seen)
}
