// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

func taintCards(s *resourceapi.ResourceSlice) {
	for i := range s.Spec.Devices {
		s.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/XidError", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
}

const noCard = "0/1 nodes are available: 1 node(s) without suitable cards. "

func TestReasonsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	empty := machine("no-cards", 0)
	empty[1] = machine("elsewhere", 1)[1] // a slice of a node that is not there
	for name, tc := range map[string]struct {
		objects []runtime.Object
		before  []want
		then    want
		want    string
	}{
		"what cards lack is counted over all nodes": {
			objects: append(machines(2, "a", "b"), machine("c", 1, taintCards)...),
			before: []want{
				onNode(onCard(0, share("80", "4Gi")), "a"), onNode(onCard(1, share("10", "38Gi")), "a"),
				onNode(onCard(0, share("80", "38Gi")), "b"), onNode(onCard(1, share("10", "38Gi")), "b"),
			},
			then: share("40", "8Gi"),
			want: "0/3 nodes are available: 3 node(s) without suitable cards. " +
				"no card has 40 percent compute and 8 GiB free: 2 cards lack memory, 1 lacks compute, 1 lacks both compute and memory, 1 is tainted",
		},
		"more memory than any card has": {
			objects: machine("a", 1), then: share("10", "64Gi"),
			want: noCard + "no card has 10 percent compute and 64 GiB free: 1 card lacks memory; the largest card has 40 GiB",
		},
		"more compute than any card has": {
			objects: machine("a", 1), then: share("130", "1Gi"),
			want: noCard + "claim pod-1, request gpu asks for 130 of cores on one card, the most is 100; for whole cards, name a count and no capacity",
		},
		"several slots": {
			objects: machine("a", 1), then: want{cores: "10", memory: "1Gi", more: map[resourceapi.QualifiedName]string{published.CapacitySlots: "2"}},
			want: noCard + "claim pod-1, request gpu asks for 2 slots, a share takes 1",
		},
		"a capacity that no card has": {
			objects: machine("a", 1), then: want{cores: "10", more: map[resourceapi.QualifiedName]string{"memroy": "1Gi"}},
			want: noCard + `claim pod-1, request gpu asks for "memroy", which no card has: cores, offlineCores and memory are what a share asks for`,
		},
		"an attribute that no card has": {
			objects: machine("a", 1), then: want{cores: "10", memory: "1Gi", selector: "device.attributes['gpu.tranche.dev'].colour == 'red'"},
			want: noCard + "claim pod-1, request gpu: selector has no answer for card card-0: no such key: colour",
		},
		"another kind of card": {
			objects: machine("a", 2), then: want{cores: "10", memory: "1Gi", selector: "device.attributes['gpu.tranche.dev'].productName == 'H100'"},
			want: noCard + "no card has 10 percent compute and 1 GiB free: 2 cards are of another kind",
		},
		"fewer cards than are asked for": {
			objects: machine("a", 2), then: want{class: "card", count: 3},
			want: noCard + "no node has 3 unused cards: 1 node has such cards, but too few",
		},
		"the most shares that cards take": {
			objects: machine("a", 1, func(s *resourceapi.ResourceSlice) {
				s.Spec.Devices[0].Capacity[published.CapacitySlots] = resourceapi.DeviceCapacity{
					Value:         *quantity("1"),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: quantity("1"), ValidValues: []resource.Quantity{*quantity("1")}},
				}
			}),
			before: []want{share("10", "1Gi")}, then: share("10", "1Gi"),
			want: noCard + "no card has 10 percent compute and 1 GiB free: 1 card has as many shares as it takes",
		},
		"no cards at all": {
			objects: empty, then: share("10", "1Gi"), want: "0/1 nodes are available: 1 node(s) without cards.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, one("spread", "binpack"), tc.objects...)
			for _, before := range tc.before {
				w.place(before)
			}
			require.Equal(t, tc.want, w.refused(tc.then))
		})
	}
}

// What is said of a thousand nodes is as long as what is said of one.
func TestReasonsAreShortInALargeCluster(t *testing.T) {
	t.Parallel()
	const nodes = 1000
	var all []runtime.Object
	for i := range nodes {
		all = append(all, machine(fmt.Sprintf("node-%04d", i), 1, func(s *resourceapi.ResourceSlice) {
			s.Spec.Devices[0].Name = fmt.Sprintf("card-%04d", i)
			if i%2 == 0 {
				taintCards(s)
			}
		})...)
	}
	w := newWorld(t, one("spread", "binpack"), all...)
	require.Equal(t, "0/1000 nodes are available: 1000 node(s) without suitable cards. "+
		"no card has 10 percent compute and 64 GiB free: 500 cards lack memory, 500 are tainted; the largest card has 40 GiB",
		w.refused(share("10", "64Gi")))
	require.Equal(t, "0/1000 nodes are available: 1000 node(s) without suitable cards. "+
		"claim pod-2, request gpu: selector has no answer for card card-0000: no such key: colour",
		w.refused(want{cores: "10", memory: "1Gi", selector: "device.attributes['gpu.tranche.dev'].colour == 'red'"}))
}

func TestWhoIsRefusedIsPlacedWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one("spread", "binpack"), machine("node", 1)...)
	w.place(share("80", "4Gi"))
	w.refused(share("40", "4Gi"))
	for _, object := range machine("second", 1) {
		w.create(object)
	}
	require.Equal(t, []string{"second/card-0"}, w.placed("pod-2"))
	w.refused(share("70", "4Gi"))
	w.release("pod-2")
	require.Equal(t, []string{"second/card-0"}, w.placed("pod-3"))
}

// release does what deleting a pod leads to.
func (w *world) release(name string) {
	w.Helper()
	require.NoError(w, w.client.CoreV1().Pods(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}))
	claims := w.client.ResourceV1().ResourceClaims(namespace)
	claim, err := claims.Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	claim.Status = resourceapi.ResourceClaimStatus{}
	_, err = claims.UpdateStatus(w.Context(), claim, metav1.UpdateOptions{})
	require.NoError(w, err)
}

func TestTaintsAreTolerated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one("spread", "binpack"), machine("node", 1, taintCards)...)
	require.Contains(t, w.refused(share("10", "1Gi")), "1 card is tainted")
	tolerant := share("10", "1Gi")
	tolerant.tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	require.Equal(t, []string{"node/card-0"}, w.place(tolerant))
}

// A class that takes in devices of other drivers is none of the model's business.
func TestDevicesOfOthersAreLeftToTheAllocator(t *testing.T) {
	t.Parallel()
	const driver = "nic.example.com"
	node := machine("node", 1)
	name := "node"
	other := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "node-nics"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &name, Devices: []resourceapi.Device{{Name: "nic-0"}},
			Pool: resourceapi.ResourcePool{Name: "node", Generation: 1, ResourceSliceCount: 1},
		},
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic.tranche.dev"}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "device.driver == '" + driver + "'"}}},
	}}
	w := newWorld(t, one("spread", "binpack"), append(node, other, class)...)
	require.Equal(t, []string{"node/nic-0"}, w.place(want{class: "nic"}))
	require.Contains(t, w.refused(want{class: "nic"}), "cannot allocate all claims")
	require.Equal(t, []string{"node/card-0"}, w.place(share("10", "1Gi")))
}

// Five shares fit on no card, though each of them would fit.
func TestRequestsThatFitOnlyAlone(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(1, "a", "b")...)
	for _, node := range []string{"a", "b"} {
		c.settle(node, onNode(share("30", "1Gi"), node))
	}
	claim := share("20", "1Gi").claim("five")
	for i := range 4 {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, *claim.Spec.Devices.Requests[0].DeepCopy())
		claim.Spec.Devices.Requests[i+1].Name = fmt.Sprint("more-", i)
	}
	c.create(claim)
	c.comeWith("five", "five")
	require.Equal(t, "0/2 nodes are available: 2 cannot allocate all claims. no node has room for all that is asked for: 2 nodes have room for each request alone",
		c.waitsFor("five"))
}

// A mistake in an annotation keeps the pod waiting until it is mended.
func TestMistakenAnnotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one("spread", "binpack"), machine("node", 2)...)
	w.place(onCard(1, share("10", "1Gi")))
	asks := share("20", "4Gi")
	asks.annotations = map[string]string{v1alpha1.AnnotationCardPolicy: "tight"}
	require.Equal(t, `0/1 nodes are available: metadata.annotations[tranche.dev/card-policy]: Unsupported value: "tight": `+
		`supported values: "binpack", "spread", "fragmentation". preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.`,
		w.refused(asks))
	pods := w.client.CoreV1().Pods(namespace)
	pod, err := pods.Get(t.Context(), "pod-2", metav1.GetOptions{})
	require.NoError(t, err)
	pod.Annotations[v1alpha1.AnnotationCardPolicy] = "spread"
	_, err = pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"node/card-0"}, w.placed("pod-2"))
}

// A pod without claims is no business of the plug-in at all, whatever it is annotated with.
func TestPodsWithoutClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one("spread", "binpack"), machine("node", 1)...)
	plain := share("10", "1Gi")
	plain.annotations = map[string]string{v1alpha1.AnnotationNodePolicy: "tight"}
	pod := plain.pod("plain")
	pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources = nil, corev1.ResourceRequirements{}
	w.create(pod)
	w.until("the pod is bound", func() string {
		got, err := w.client.CoreV1().Pods(namespace).Get(t.Context(), "plain", metav1.GetOptions{})
		require.NoError(t, err)
		if got.Spec.NodeName == "" {
			return "it is not"
		}
		return ""
	})
}
