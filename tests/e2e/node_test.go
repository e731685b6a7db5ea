// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/tests/kube"
)

// A node's object can be deleted and made again while everything runs on. What
// belongs to the old one is deleted as often as it is published.
func TestANodeThatWasRegisteredAnewHasItsCards(t *testing.T) {
	name := os.Getenv("TRANCHE_CLUSTER_NODE")
	old, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	ctl(t, "stop", "kubelet")
	require.NoError(t, client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	ctl(t, "start", "kubelet")

	var anew *corev1.Node
	require.Eventually(t, func() bool {
		anew, err = client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && anew.UID != old.UID
	}, patience, tick, "the node is registered")
	require.Eventually(t, func() bool {
		list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + kube.Driver})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		for _, s := range list.Items {
			if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != anew.UID {
				return false
			}
		}
		return true
	}, 2*patience, tick, "the slices belong to the node of today")
	published(t)
	n := newTeam(t, "registered-anew")
	n.pod(t, "p", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
}
