// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// world is a cluster that does at once what kubectl asks for.
type world struct {
	t      *testing.T
	client *fake.Clientset
	calls  []string

	// ready is how many of one driver become ready, arbiters of one arbiter, and
	// cards how many are published.
	ready, arbiters int32
	cards           int
	// places is the card on which each pod gets its share.
	places map[string]int
	// pending are the pods that cannot be placed.
	pending map[string]bool
	// refuses is set where the admission policies work.
	refuses      bool
	kubectlFails error
	// silent pods say nothing; others do when asked again.
	silent bool
	asked  int

	// workFails is why the program work ends at once in one of the pods.
	workFails error
	mu        sync.Mutex
	talks     int // how often a program was talked to
	// idle programs end without having done anything.
	idle bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, client: fake.NewClientset(), ready: 1, arbiters: 1, cards: cards, refuses: true,
		places: map[string]int{"a": 0, "b": 0, "c": 0, "d": 1}, pending: map[string]bool{"e": true},
	}
	asked := 0
	w.client.PrependReactor("create", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(k8stesting.CreateActionImpl)
		if !ok || !slices.Equal(create.GetCreateOptions().DryRun, []string{metav1.DryRunAll}) {
			return false, nil, nil
		}
		// A policy takes effect after a moment.
		if asked++; asked < 2 || !w.refuses {
			return true, create.GetObject(), nil
		}
		return true, nil, apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "too-much", fmt.Errorf("cores: 130 is too much"))
	})
	return w
}

func (w *world) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	w.calls = append(w.calls, strings.Join(args, " "))
	if w.kubectlFails != nil {
		return nil, w.kubectlFails
	}
	switch args[len(args)-1] {
	case oneOfThree, anotherOfThree:
		w.asked++
		if w.asked < 2 || w.silent {
			return []byte("start total=4294967296 free=4026531840 blocks=0 bytes=0\n"), nil
		}
		return []byte("full total=4294967296 free=268435456 blocks=7 bytes=3758096384\nend total=4294967296 free=4026531840 blocks=0 bytes=0\n"), nil
	case localCluster:
		w.install(ctx)
		return nil, nil
	}
	switch args[2] {
	case threePods:
		return w.pods(ctx, "a", "b", "c"), nil
	case wholeCard:
		return w.pods(ctx, "e"), nil
	}
	return w.pods(ctx, "d"), nil
}

// talk runs the program work, which gets what its pod asked for, or all where it is alone.
func (w *world) talk(_ context.Context, in io.Reader, out io.Writer, args ...string) error {
	w.mu.Lock()
	w.talks++
	w.mu.Unlock()
	if w.workFails != nil && args[2] == anotherOfThree {
		return w.workFails
	}
	if _, err := io.WriteString(out, whenReady); err != nil {
		return err
	}
	told, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	require.Equal(w.t, goOn, string(told))
	w.mu.Lock()
	defer w.mu.Unlock()
	launches := map[string]int{oneOfThree: 897, "part-b": 903, anotherOfThree: 1196}[args[2]]
	if w.talks > 3 {
		launches = 2983
	}
	if w.idle {
		return nil
	}
	_, err = fmt.Fprintf(out, "end launches=%d\n", launches)
	return err
}

func (w *world) install(ctx context.Context) {
	for name, ready := range map[string]int32{driverName: w.ready, arbiterName: w.arbiters} {
		_, err := w.client.AppsV1().DaemonSets(driverNamespace).Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: ready},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
	_, err := w.client.CoreV1().Pods(driverNamespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: driverName + "-x"}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice"}}
	slice.Spec.Driver, slice.Spec.Pool.Name = "gpu.tranche.dev", "node-1"
	for i := range w.cards {
		shared, model, index := true, "NVIDIA A30", int64(i)
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", i), AllowMultipleAllocations: &shared,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"index": {IntValue: &index}, "productName": {StringValue: &model}},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"cores": {Value: resource.MustParse("100")}, "memory": {Value: resource.MustParse("24Gi")},
			},
		})
	}
	_, err = w.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// pods makes the pods and their claims, and prints them as kubectl does.
func (w *world) pods(ctx context.Context, names ...string) []byte {
	list := struct {
		Kind  string        `json:"kind"`
		Items []*corev1.Pod `json:"items"`
	}{Kind: "List"}
	for _, name := range names {
		pod := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}
		if w.pending[name] {
			w.cannotBePlaced(ctx, pod)
		}
		_, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(w.t, err)
		list.Items = append(list.Items, pod)
		if place, found := w.places[name]; found {
			w.claim(ctx, pod, place)
		}
	}
	raw, err := json.Marshal(list)
	require.NoError(w.t, err)
	return raw
}

func (w *world) cannotBePlaced(ctx context.Context, pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "cannot allocate all claims"},
	}}
	_, err := w.client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "event"}, Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Message: "no card",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) claim(ctx context.Context, pod *corev1.Pod, place int) {
	id := types.UID("share-" + pod.Name)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{
		Driver: "gpu.tranche.dev", Pool: "node-1", Device: fmt.Sprintf("gpu-%d", place), Request: "gpu", ShareID: &id,
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"cores": resource.MustParse("30"), "memory": resource.MustParse("4Gi")},
	}}
	_, err := w.client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	require.NoError(w.t, err)
}
