// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/testing/defaults"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tranche-dra/tranche/cmd/tranche-scheduler/plugin"
	"github.com/tranche-dra/tranche/deviceclasses"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

const (
	namespace = "team"
	cardSize  = card.MiB(40 << 10)
	// patience only ends tests that have failed.
	patience = 10 * time.Second
)

// world is a whole scheduler with the plug-in, in front of an API server that
// keeps objects and nothing else.
type world struct {
	*testing.T
	client  *fake.Clientset
	version atomic.Int64
	pods    int
}

// newWorld has the classes of deviceclasses/ and the given objects, and a profile
// for each of the arguments.
func newWorld(t *testing.T, profiles map[string]*v1alpha1.TrancheArgs, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldWith(t, plugin.NewFactory(), profiles, objects...)
}

func newWorldWith(t *testing.T, factory frameworkruntime.PluginFactory, profiles map[string]*v1alpha1.TrancheArgs, objects ...runtime.Object) *world {
	t.Helper()
	classes, err := deviceclasses.All()
	require.NoError(t, err)
	for i := range classes {
		objects = append(objects, classes[i])
	}
	w := &world{T: t, client: fake.NewClientset()}
	w.numberVersions()
	w.bindPods()
	w.copyEvents()
	for _, o := range objects {
		w.create(o)
	}
	ctx := klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(2))))
	ctx, stop := context.WithCancel(ctx)
	informers := newInformers(w.client)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: w.client.EventsV1()})
	dynamicInformers := dynamicinformer.NewDynamicSharedInformerFactory(dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), 0)
	all := int32(100)
	s, err := scheduler.New(ctx, w.client, informers, dynamicInformers, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(configured(profiles)...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{plugin.Name: factory}),
		scheduler.WithPercentageOfNodesToScore(&all),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	require.NoError(t, err)
	informers.Start(t.Context().Done())
	dynamicInformers.Start(t.Context().Done())
	informers.WaitForCacheSync(t.Context().Done())
	require.NoError(t, s.WaitForHandlersSync(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return w
}

// configured is the profiles as deployments/static/scheduler has them.
func configured(profiles map[string]*v1alpha1.TrancheArgs) []config.KubeSchedulerProfile {
	var all []config.KubeSchedulerProfile
	for name, args := range profiles {
		p := config.KubeSchedulerProfile{
			SchedulerName: name, Plugins: defaults.ExpandedPluginsV1.DeepCopy(), PluginConfig: defaults.PluginConfigsV1,
		}
		p.PluginConfig = append(slices.Clip(p.PluginConfig), config.PluginConfig{Name: plugin.Name, Args: args})
		p.Plugins = &config.Plugins{}
		p.Plugins.MultiPoint = *defaults.PluginsV1.MultiPoint.DeepCopy()
		for i := range p.Plugins.MultiPoint.Enabled {
			if p.Plugins.MultiPoint.Enabled[i].Name == "DynamicResources" {
				p.Plugins.MultiPoint.Enabled[i] = config.Plugin{Name: plugin.Name, Weight: 20}
			}
		}
		all = append(all, p)
	}
	return all
}

func policies(node, of string) *v1alpha1.TrancheArgs {
	args := v1alpha1.NewTrancheArgs()
	args.NodePolicy, args.CardPolicy = policy(node), policy(of)
	v1alpha1.SetTrancheArgsDefaults(args)
	return args
}

// one is a single profile with the name that pods ask for by default.
func one(node, of string) map[string]*v1alpha1.TrancheArgs {
	return map[string]*v1alpha1.TrancheArgs{corev1.DefaultSchedulerName: policies(node, of)}
}

// numberVersions gives objects UIDs and resource versions, which the scheduler
// compares.
func (w *world) numberVersions() {
	w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a, ok := action.(clienttesting.CreateAction); ok { // updates have the same methods
			w.number(a.GetObject())
		}
		return false, nil, nil
	})
}

func (w *world) number(object runtime.Object) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetResourceVersion(strconv.FormatInt(w.version.Add(1), 10))
		if o.GetUID() == "" {
			o.SetUID(types.UID("uid-" + o.GetResourceVersion()))
		}
	}
}

// copyEvents gives each watch objects of its own, as a real API server does: the scheduler's informers take out of them
// what they do not need, and the fake client would hand out what it keeps itself.
func (w *world) copyEvents() {
	w.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		options := action.(clienttesting.WatchActionImpl).ListOptions
		events, err := w.client.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
			event.Object = event.Object.DeepCopyObject()
			return event, true
		}), nil
	})
}

// bindPods does what the API server does with a binding. Within a reactor, the
// client itself must not be called.
func (w *world) bindPods() {
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	w.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		found, err := w.client.Tracker().Get(resource, action.GetNamespace(), binding.Name)
		if err != nil {
			return true, nil, err
		}
		pod := found.(*corev1.Pod).DeepCopy()
		pod.Spec.NodeName = binding.Target.Name
		w.number(pod)
		return true, binding, w.client.Tracker().Update(resource, pod, action.GetNamespace())
	})
}

func (w *world) create(object runtime.Object) {
	w.Helper()
	ctx := w.Context()
	var err error
	switch o := object.(type) {
	case *corev1.Node:
		_, err = w.client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = w.client.CoreV1().Pods(namespace).Create(ctx, o, metav1.CreateOptions{})
	case *resourceapi.ResourceClaim:
		_, err = w.client.ResourceV1().ResourceClaims(namespace).Create(ctx, o, metav1.CreateOptions{})
	case *resourceapi.ResourceSlice:
		_, err = w.client.ResourceV1().ResourceSlices().Create(ctx, o, metav1.CreateOptions{})
	case *resourceapi.DeviceClass:
		_, err = w.client.ResourceV1().DeviceClasses().Create(ctx, o, metav1.CreateOptions{})
	default:
		w.Fatalf("no way to create a %T", object)
	}
	require.NoError(w, err)
}

// machine is a node with that many cards, card-0 and so on, and its slice.
func machine(name string, cards int, change ...func(*resourceapi.ResourceSlice)) []runtime.Object {
	list := make([]card.Card, cards)
	for i := range list {
		list[i] = card.Card{
			UUID: card.UUID(fmt.Sprintf("card-%d", i)), Index: i, Minor: i, Vendor: card.VendorNVIDIA, ProductName: "A100",
			ComputeCapability: "8.0", DriverVersion: "580.65.06", CUDAVersion: "13.0", Memory: cardSize,
		}
	}
	resources, _ := published.Build(list, published.Options{NodeName: name, Shareable: true})
	pool := resources.Pools[name]
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DriverName, NodeName: &name, Devices: pool.Slices[0].Devices,
			Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for _, c := range change {
		c(slice)
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("500"),
	}
	return []runtime.Object{
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
		}, slice,
	}
}

// want is what a pod's claim asks for.
type want struct {
	class       string // without the domain; "" is share
	cores       string // "" and no memory is a whole card
	offline     string
	memory      string
	count       int64
	selector    string
	more        map[resourceapi.QualifiedName]string
	annotations map[string]string
	scheduler   string
	labels      map[string]string
	tolerations []resourceapi.DeviceToleration
	constraint  string
	node        string // keeps the pod to it
}

func share(cores, memory string) want { return want{cores: cores, memory: memory} }

func (a want) claim(name string) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: "share.tranche.dev", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: max(a.count, 1),
		Tolerations: a.tolerations,
	}
	if a.class != "" {
		exactly.DeviceClassName = a.class + ".tranche.dev"
	}
	amounts := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, value := range map[resourceapi.QualifiedName]string{
		published.CapacityCores: a.cores, published.CapacityOfflineCores: a.offline, published.CapacityMemory: a.memory,
	} {
		if value != "" {
			amounts[name] = resource.MustParse(value)
		}
	}
	for name, value := range a.more {
		amounts[name] = resource.MustParse(value)
	}
	if len(amounts) > 0 {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: amounts}
	}
	if a.selector != "" {
		exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: a.selector}}}
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	if a.constraint != "" {
		attribute := resourceapi.FullyQualifiedName(a.constraint)
		claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
	}
	return claim
}

// submit makes a pod and its claim.
func (w *world) submit(a want) string {
	w.Helper()
	w.pods++
	name := fmt.Sprintf("pod-%d", w.pods)
	w.create(a.claim(name))
	w.create(a.pod(name))
	return name
}

func (a want) pod(name string) *corev1.Pod {
	if a.scheduler == "" {
		a.scheduler = corev1.DefaultSchedulerName
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: a.annotations, Labels: a.labels},
		Spec: corev1.PodSpec{
			SchedulerName:  a.scheduler,
			NodeSelector:   a.nodeSelector(),
			Containers:     []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
		},
	}
}

func (a want) nodeSelector() map[string]string {
	if a.node == "" {
		return nil
	}
	return map[string]string{corev1.LabelHostname: a.node}
}

// place submits a pod and waits until it is bound: "node/card", with as many cards
// as it got.
func (w *world) place(a want) []string {
	w.Helper()
	return w.placed(w.submit(a))
}

func (w *world) placed(name string) []string {
	w.Helper()
	node := w.bound(name)
	claim, err := w.client.ResourceV1().ResourceClaims(namespace).Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	require.NotNil(w, claim.Status.Allocation)
	var at []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		require.Equal(w, node, r.Pool)
		at = append(at, r.Pool+"/"+r.Device)
	}
	return at
}

func (w *world) bound(name string) (node string) {
	w.Helper()
	return w.has(name, "a node", func(pod *corev1.Pod) string { return pod.Spec.NodeName })
}

// has waits until the pod has that.
func (w *world) has(name, what string, of func(*corev1.Pod) string) (found string) {
	w.Helper()
	w.until("pod "+name+" has "+what, func() string {
		pod, err := w.client.CoreV1().Pods(namespace).Get(w.Context(), name, metav1.GetOptions{})
		require.NoError(w, err)
		if found = of(pod); found == "" {
			return fmt.Sprint(pod.Status.Conditions)
		}
		return ""
	})
	return found
}

// refused is what is said of a pod that does not fit.
func (w *world) refused(a want) string {
	w.Helper()
	return w.waitsFor(w.submit(a))
}

// waitsFor is what is said of a pod that waits.
func (w *world) waitsFor(name string) string {
	w.Helper()
	w.until("pod "+name+" is refused", func() string {
		if w.message(name) == "" {
			return "no condition says so"
		}
		return ""
	})
	return w.message(name)
}

// message is why the pod is not scheduled, empty where nothing is said of that.
func (w *world) message(name string) string {
	w.Helper()
	pod, err := w.client.CoreV1().Pods(namespace).Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	require.Empty(w, pod.Spec.NodeName)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func (w *world) until(what string, missing func() string) {
	w.Helper()
	var last string
	err := wait.PollUntilContextTimeout(w.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = missing()
		return last == "", nil
	})
	require.NoError(w, err, "%s: %s", what, last)
}

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}
