// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/pkg/share"
)

func TestClusterEvents(t *testing.T) {
	t.Parallel()
	long := share.Claim{UID: "uid", Namespace: strings.Repeat("s", 63), Name: strings.Repeat("n", 253)}
	for name, tc := range map[string]struct {
		nodeUID   types.UID
		tell      func(*driver.ClusterEvents)
		namespace string
		regarding corev1.ObjectReference
		message   string
		kind      string
		reason    string
	}{
		"on a claim, of what its owner wanted": {
			tell: func(e *driver.ClusterEvents) {
				e.Claim(share.Claim{UID: "uid", Namespace: "team", Name: "c"}, driver.ReasonCeilingChanged, "m")
			},
			namespace: "team", message: "m", kind: corev1.EventTypeNormal, reason: "BurstCeilingChanged",
			regarding: corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: "team", Name: "c", UID: "uid"},
		},
		"on a claim, in its namespace": {
			tell: func(e *driver.ClusterEvents) {
				e.Claim(share.Claim{UID: "uid", Namespace: "team", Name: "c"}, "R", "m")
			},
			namespace: "team", message: "m",
			regarding: corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: "team", Name: "c", UID: "uid"},
		},
		"on a claim with the longest names": {
			tell:      func(e *driver.ClusterEvents) { e.Claim(long, "R", "m") },
			namespace: long.Namespace, message: "m",
			regarding: corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: long.Namespace, Name: long.Name, UID: "uid"},
		},
		"on a pod, in its namespace": {
			tell: func(e *driver.ClusterEvents) {
				e.Pod(types.NamespacedName{Namespace: "team", Name: "p"}, "uid", "R", "m")
			},
			namespace: "team", message: "m",
			regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "team", Name: "p", UID: "uid"},
		},
		"on the node": {
			nodeUID:   "node-uid",
			tell:      func(e *driver.ClusterEvents) { e.Node("R", "m") },
			namespace: "default", message: "m",
			regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node1", UID: "node-uid"},
		},
		"on the node, of what its administrator wanted": {
			nodeUID:   "node-uid",
			tell:      func(e *driver.ClusterEvents) { e.Node("DefaultPolicyChanged", "m") },
			namespace: "default", message: "m", kind: corev1.EventTypeNormal, reason: "DefaultPolicyChanged",
			regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node1", UID: "node-uid"},
		},
		"on the node whose UID is not known, with a long message": {
			tell:      func(e *driver.ClusterEvents) { e.Node("R", strings.Repeat("m", 2000)) },
			namespace: "default", message: strings.Repeat("m", 1021) + "...",
			regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node1", UID: "node1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			events := driver.NewClusterEvents(t.Context(), client, "node1", tc.nodeUID)
			t.Cleanup(events.Close)
			tc.tell(events)
			var list *corev1.EventList
			eventually(t, "an event", func() bool {
				var err error
				list, err = client.CoreV1().Events(tc.namespace).List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				return len(list.Items) == 1
			})
			got := list.Items[0]
			require.Equal(t, tc.regarding, got.InvolvedObject)
			require.Equal(t, []string{cmp.Or(tc.kind, corev1.EventTypeWarning), cmp.Or(tc.reason, "R"), tc.message}, []string{got.Type, got.Reason, got.Message})
			require.Equal(t, corev1.EventSource{Component: "tranche-node", Host: "node1"}, got.Source)
			require.LessOrEqual(t, len(got.Name), 253, "the name of an event is made from that of its object")
		})
	}
}
