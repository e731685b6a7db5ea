// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
)

const urgent = 1000

// crowd is a world in which pods give way to others.
type crowd struct {
	*world
	controller sync.WaitGroup
}

func newCrowd(t *testing.T, objects ...runtime.Object) *crowd {
	t.Helper()
	return &crowd{world: newWorld(t, one("spread", "binpack"), objects...)}
}

// releasing releases claims when their pods are gone, as the controller of claims
// does in a cluster.
func (c *crowd) releasing() *crowd {
	watch, err := c.client.CoreV1().Pods(namespace).Watch(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	c.controller.Go(func() {
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == "DELETED" {
				c.release(pod.Name)
			}
		}
	})
	c.Cleanup(func() {
		watch.Stop()
		c.controller.Wait()
	})
	return c
}

// release takes away the allocation of the claim of a pod that is gone.
func (c *crowd) release(name string) {
	claims := c.client.ResourceV1().ResourceClaims(namespace)
	claim, err := claims.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return // pods without a claim of their own
	}
	claim.Status = resourceapi.ResourceClaimStatus{}
	if _, err := claims.UpdateStatus(context.Background(), claim, metav1.UpdateOptions{}); err != nil {
		c.Error(err)
	}
}

type podOption func(*corev1.Pod)

func withPriority(p int32) podOption { return func(pod *corev1.Pod) { pod.Spec.Priority = &p } }

func never(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = new(corev1.PreemptNever) }

func withLabel(value string) podOption {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": value} }
}

func cpu(text string) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
	}
}

func (c *crowd) come(name string, a want, options ...podOption) {
	c.Helper()
	c.create(a.claim(name))
	pod := a.pod(name)
	for _, o := range options {
		o(pod)
	}
	c.create(pod)
}

func (c *crowd) settle(name string, a want, options ...podOption) []string {
	c.Helper()
	c.come(name, a, options...)
	return c.placed(name)
}

func (c *crowd) there(names ...string) {
	c.Helper()
	for _, name := range names {
		_, err := c.client.CoreV1().Pods(namespace).Get(c.Context(), name, metav1.GetOptions{})
		require.NoError(c, err, "%s stays", name)
	}
}

func (c *crowd) gone(names ...string) {
	c.Helper()
	for _, name := range names {
		c.until(name+" is gone", func() string {
			if _, err := c.client.CoreV1().Pods(namespace).Get(c.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Sprint("it is there: ", err)
			}
			return ""
		})
	}
}

func (c *crowd) refusedAs(name string, a want, options ...podOption) string {
	c.Helper()
	c.come(name, a, options...)
	return c.waitsFor(name)
}

// wasTold requires that the pod's condition said so at some time, be it another one by now.
func (c *crowd) wasTold(name, message string) {
	c.Helper()
	quoted, err := json.Marshal(message)
	require.NoError(c, err)
	c.until(name+" is told", func() string {
		for _, action := range c.client.Actions() {
			patch, ok := action.(clienttesting.PatchAction)
			if ok && patch.GetName() == name && bytes.Contains(patch.GetPatch(), quoted) {
				return ""
			}
		}
		return "it says " + c.message(name)
	})
}

// keepsNobodyOut requires that nothing is expected for the pod: it is decided in one
// with refusing it.
func (c *crowd) keepsNobodyOut(name string) {
	c.Helper()
	pod, err := c.client.CoreV1().Pods(namespace).Get(c.Context(), name, metav1.GetOptions{})
	require.NoError(c, err)
	require.Empty(c, pod.Status.NominatedNodeName)
}

func (c *crowd) nominated(name string) {
	c.Helper()
	c.has(name, "a nomination", func(pod *corev1.Pod) string { return pod.Status.NominatedNodeName })
}

// givesWay has the pod victim give way to the pod urgent, which waits for what it held.
func (c *crowd) givesWay(held, asks want) {
	c.Helper()
	c.settle("victim", held)
	c.come("urgent", asks, withPriority(urgent))
	c.gone("victim")
	c.nominated("urgent")
}

func offlineShare(cores, memory string) want {
	return want{class: "offline", cores: "0", offline: cores, memory: memory}
}

func TestWhoGivesWay(t *testing.T) {
	t.Parallel()
	type holder struct {
		name    string
		asks    want
		options []podOption
	}
	for name, tc := range map[string]struct {
		cards   int
		holders []holder
		budget  string // of pods with that label, none of which may go
		asks    want
		gone    []string
	}{
		"offline work, though it is more urgent": {
			1, []holder{
				{"online", share("40", "15Gi"), nil},
				{"offline", offlineShare("40", "15Gi"), []podOption{withPriority(5)}},
			}, "", share("20", "16Gi"), []string{"offline"},
		},
		"as few as possible": {
			1,
			[]holder{{"small-1", share("10", "6Gi"), nil}, {"large", share("10", "20Gi"), nil}, {"small-2", share("10", "6Gi"), nil}},
			"", share("10", "18Gi"),
			[]string{"large"},
		},
		"those of lower priority": {
			1,
			[]holder{{"more", share("10", "18Gi"), []podOption{withPriority(2)}}, {"less", share("10", "18Gi"), []podOption{withPriority(1)}}},
			"", share("10", "18Gi"),
			[]string{"less"},
		},
		"those who have no budget left only if nothing else helps": {
			1,
			[]holder{{"kept", share("10", "18Gi"), []podOption{withLabel("db")}}, {"other", share("10", "18Gi"), []podOption{withPriority(5)}}},
			"db", share("10", "18Gi"),
			[]string{"other"},
		},
		"all on two cards": {
			3, []holder{
				{"first", onCard(0, share("10", "1Gi")), nil},
				{"too", onCard(0, share("10", "1Gi")), nil},
				{"second", onCard(1, share("10", "1Gi")), nil},
				{"third", onCard(2, share("10", "1Gi")), nil},
			}, "", want{count: 2}, []string{"second", "third"},
		},
		"those of lower priority that the allocator says": {
			2,
			[]holder{
				{"more", onCard(0, share("10", "20Gi")), []podOption{withPriority(2)}},
				{"less", onCard(1, share("10", "20Gi")), []podOption{withPriority(1)}},
			},
			"",
			want{cores: "10", memory: "25Gi", constraint: "gpu.tranche.dev/productName"},
			[]string{"less"},
		},
		"offline work, though it is more urgent, that the allocator says": {
			2,
			[]holder{
				{"online", onCard(0, share("40", "20Gi")), nil},
				{"offline", onCard(1, offlineShare("40", "20Gi")), []podOption{withPriority(5)}},
			},
			"",
			want{cores: "10", memory: "25Gi", constraint: "gpu.tranche.dev/productName"},
			[]string{"offline"},
		},
		"who has all of a card that is asked for": {
			2, []holder{
				{"whole", onCard(0, want{class: "card"}), nil},
				{"kept", onCard(1, share("10", "1Gi")), []podOption{withPriority(urgent)}},
			}, "", want{class: "card"}, []string{"whole"},
		},
		"those that the allocator says": {
			1,
			[]holder{{"small", share("10", "10Gi"), nil}, {"large", share("10", "20Gi"), nil}},
			"",
			want{cores: "10", memory: "25Gi", constraint: "gpu.tranche.dev/productName"},
			[]string{"large"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, machines(tc.cards, "node")...).releasing()
			if tc.budget != "" {
				c.budget(tc.budget)
			}
			for _, h := range tc.holders {
				c.settle(h.name, h.asks, h.options...)
			}
			c.settle("urgent", tc.asks, withPriority(urgent))
			c.gone(tc.gone...)
			for _, h := range tc.holders {
				if !slices.Contains(tc.gone, h.name) {
					c.there(h.name)
				}
			}
		})
	}
}

// Several nodes could be had.
func TestWhoGivesWayAmongNodes(t *testing.T) {
	t.Parallel()
	type holder struct {
		asks    want
		options []podOption
	}
	for name, tc := range map[string]struct {
		holders map[string]holder // by node
		then    []string          // the nodes that pods get, one after the other
	}{
		"not those who have no budget left": {map[string]holder{
			"a": {share("10", "30Gi"), []podOption{withLabel("db")}},
			"b": {share("10", "30Gi"), []podOption{withPriority(5)}},
		}, []string{"b", "a"}},
		"offline work, then those of lower priority": {map[string]holder{
			"a": {share("10", "30Gi"), []podOption{withPriority(1)}},
			"b": {offlineShare("10", "30Gi"), []podOption{withPriority(7)}},
			"c": {share("10", "30Gi"), []podOption{withPriority(3)}},
		}, []string{"b", "a", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, machines(1, slices.Sorted(maps.Keys(tc.holders))...)...).releasing()
			c.budget("db")
			for node, h := range tc.holders {
				c.settle("on-"+node, onNode(h.asks, node), h.options...)
			}
			for i, node := range tc.then {
				require.Equal(t, []string{node + "/card-0"}, c.settle(fmt.Sprint("urgent-", i), share("10", "30Gi"), withPriority(urgent)))
				for _, other := range tc.then[i+1:] {
					c.there("on-" + other)
				}
			}
		})
	}
}

// budget is one of which none of the pods with the label may go.
func (c *crowd) budget(label string) {
	c.Helper()
	_, err := c.client.PolicyV1().PodDisruptionBudgets(namespace).Create(c.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget", Namespace: namespace},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": label}}},
	}, metav1.CreateOptions{})
	require.NoError(c, err)
}

func TestNobodyGivesWay(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]podOption{
		"to who is no more urgent":   nil,
		"to who asks that of nobody": {withPriority(urgent), never},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, machines(1, "node")...).releasing()
			c.settle("first", share("10", "30Gi"))
			require.Contains(t, c.refusedAs("second", share("10", "30Gi"), options...), "no card has 10 percent compute and 30 GiB free")
			c.keepsNobodyOut("second")
			c.there("first")
		})
	}
}

func TestClaimsOfSeveralPodsStay(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(1, "node")...).releasing()
	c.create(share("10", "30Gi").claim("shared"))
	for _, name := range []string{"one", "two"} {
		c.comeWith(name, "shared", cpu("1"))
		c.bound(name)
	}
	require.Contains(t, c.refusedAs("urgent", share("10", "20Gi"), withPriority(urgent)), "no card has")
	c.keepsNobodyOut("urgent")
	c.refusedAs("busy", share("10", "1Gi"), cpu("63"), withPriority(urgent))
	c.keepsNobodyOut("busy")
	c.there("one", "two")
}

// Cards are not all that is missing: CPU is, too.
func TestWhoGivesWayWhereTheNodeIsFullToo(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(1, "node")...).releasing()
	c.settle("gpu", share("10", "30Gi"), cpu("10"))
	c.settle("busy", share("10", "1Gi"), cpu("50"))
	c.settle("urgent", share("10", "30Gi"), cpu("20"), withPriority(urgent))
	c.gone("gpu", "busy")
}

// nudge has every pod that waits tried again.
func (c *crowd) nudge() {
	c.Helper()
	published := c.client.ResourceV1().ResourceSlices()
	slice, err := published.Get(c.Context(), "node-slice", metav1.GetOptions{})
	require.NoError(c, err)
	slice.Annotations = map[string]string{"nudge": slice.ResourceVersion}
	_, err = published.Update(c.Context(), slice, metav1.UpdateOptions{})
	require.NoError(c, err)
}

// A victim is gone, and its claim is still allocated. Somebody else comes, and the
// pod that waits is tried, too.
func TestRoomIsKeptUntilClaimsAreReleased(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(2, "node")...)
	c.settle("victim", onCard(0, share("10", "30Gi")))
	c.settle("other", onCard(1, share("10", "30Gi")), withPriority(1))
	c.come("urgent", share("10", "35Gi"), withPriority(urgent))
	c.gone("victim")
	c.nominated("urgent")

	require.Equal(t, []string{"node/card-1"}, c.settle("small", share("10", "6Gi")))
	require.NotEmpty(t, c.refusedAs("late", share("10", "6Gi")), "what is free of card 0 is kept")
	c.nudge()
	// Whoever comes after the nudge is tried after who was there before.
	require.Equal(t, []string{"node/card-1"}, c.settle("after", share("1", "1Gi")))
	c.there("other", "small")

	c.release("victim")
	require.Equal(t, []string{"node/card-0"}, c.placed("urgent"))
	c.there("other", "small")
	require.Equal(t, []string{"node/card-0"}, c.settle("rest", share("10", "5Gi")))
}

// The pod that others gave way to is deleted before it can begin.
func TestRoomOfWhoIsGoneIsGivenAway(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(1, "node")...)
	c.settle("victim", share("10", "30Gi"))
	c.come("urgent", share("10", "35Gi"), withPriority(urgent))
	c.gone("victim")
	c.wasTold("urgent", noCard+"no card has 10 percent compute and 35 GiB free: 1 card lacks memory; less urgent pods give way on node node")
	c.nominated("urgent")
	require.NotEmpty(t, c.refusedAs("small", share("10", "6Gi")))
	require.NoError(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), "urgent", metav1.DeleteOptions{}))
	c.placed("small") // beside the claim of the victim
}

func TestTwoForWhomOthersGiveWay(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(2, "node")...).releasing()
	for i := range 2 {
		c.settle(fmt.Sprint("victim-", i), onCard(i, share("10", "30Gi")))
	}
	c.settle("bystander", share("1", "5Gi"), withPriority(5))
	c.come("urgent-1", share("10", "30Gi"), withPriority(urgent))
	c.come("urgent-2", share("10", "30Gi"), withPriority(urgent))
	require.NotEqual(t, c.placed("urgent-1"), c.placed("urgent-2"))
	c.gone("victim-0", "victim-1")
	c.there("bystander")
}

// Who ends by itself meanwhile is not missed, and nobody goes in its place.
func TestVictimEndsByItself(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(2, "node")...)
	c.settle("first", onCard(0, share("10", "30Gi")))
	c.settle("second", onCard(1, share("10", "30Gi")), withPriority(1))
	// It ends after its victim was chosen and before it is told.
	c.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		return false, nil, c.client.Tracker().Delete(pods, namespace, "first")
	})
	c.come("urgent", share("10", "35Gi"), withPriority(urgent))
	c.gone("first")
	c.release("first")
	require.Equal(t, []string{"node/card-0"}, c.placed("urgent"))
	c.there("second")
}

// The scheduler is started anew while a pod waits for its victim to end.
func TestRoomIsKeptThroughARestart(t *testing.T) {
	t.Parallel()
	before := newCrowd(t, machines(1, "node")...)
	before.givesWay(share("10", "30Gi"), share("10", "35Gi"))
	objects := before.objects(machines(1, "node"))
	victim := share("10", "30Gi").pod("victim") // as if it were ending slowly
	victim.UID, victim.Spec.NodeName = before.uid("victim"), "node"
	victim.DeletionTimestamp, victim.Finalizers = new(metav1.Now()), []string{"tests/slow"}

	after := newCrowd(t, append(objects, victim)...)
	require.NotEmpty(t, after.refusedAs("small", share("10", "6Gi")))
	require.NoError(t, after.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "victim"))
	after.release("victim")
	after.placed("urgent")
}

// The scheduler is started anew when the victim is gone and its claim is not released
// yet: nobody else has to go.
func TestNobodyElseGivesWayAfterARestart(t *testing.T) {
	t.Parallel()
	before := newCrowd(t, machines(2, "node")...)
	before.settle("victim", onCard(0, share("10", "30Gi")))
	before.settle("other", onCard(1, share("10", "30Gi")), withPriority(1))
	before.come("urgent", share("10", "35Gi"), withPriority(urgent))
	before.gone("victim")
	before.nominated("urgent")

	after := newCrowd(t, before.objects(machines(2, "node"))...)
	after.nudge()
	require.Equal(t, []string{"node/card-1"}, after.settle("small", share("10", "6Gi")), "urgent was tried first")
	require.NotEmpty(t, after.refusedAs("late", share("10", "6Gi")), "what is free of card 0 is kept")
	after.there("other")
	after.release("victim")
	require.Equal(t, []string{"node/card-0"}, after.placed("urgent"))
	after.there("other", "small")
}

// A pod ends for reasons of its own, though it is as urgent as any.
func TestNobodyGivesWayForRoomThatIsAboutToBeFree(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(2, "node")...)
	c.settle("ends", onCard(0, share("10", "30Gi")), withPriority(urgent))
	c.settle("other", onCard(1, share("10", "30Gi")))
	require.NoError(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), "ends", metav1.DeleteOptions{}))
	c.gone("ends")
	require.Equal(t, noCard+"no card has 10 percent compute and 35 GiB free: 2 cards lack memory; waits until claims of pods that end are released on node node",
		c.refusedAs("urgent", share("10", "35Gi"), withPriority(urgent)))
	c.nominated("urgent")
	require.Equal(t, []string{"node/card-1"}, c.settle("small", share("10", "6Gi")), "what is free of card 0 is kept")
	c.release("ends")
	require.Equal(t, []string{"node/card-0"}, c.placed("urgent"))
	c.there("other", "small")
}

// A claim is released after the attempt has begun, for which it is still allocated.
func TestNobodyGivesWayForRoomThatHasJustBecomeFree(t *testing.T) {
	t.Parallel()
	var h watched
	c := &crowd{world: newWorldWith(t, h.factory(), one("spread", "binpack"), machines(2, "node")...)}
	c.settle("ended", onCard(0, share("10", "30Gi")), withPriority(urgent))
	c.settle("other", onCard(1, share("10", "30Gi")))
	require.NoError(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), "ended", metav1.DeleteOptions{}))
	c.gone("ended")
	release := func(claims fwk.ResourceClaimTracker) {
		c.release("ended")
		c.until("the scheduler knows of it", func() string {
			if claim, err := claims.Get(namespace, "ended"); err != nil || claim.Status.Allocation != nil {
				return "not yet"
			}
			return ""
		})
	}
	h.then.Store(&release)
	large := forAllocator()
	large.memory = "35Gi"
	require.Equal(t, []string{"node/card-0"}, c.settle("urgent", large, withPriority(urgent)))
	c.there("other")
}

// Nobody waits for a pod that should be gone for long.
func TestWhoDoesNotEndIsNotAwaited(t *testing.T) {
	t.Parallel()
	before := newCrowd(t, machines(2, "node")...)
	before.settle("stuck", onCard(0, share("10", "30Gi")), withPriority(urgent))
	before.settle("other", onCard(1, share("10", "30Gi")))
	objects := before.objects(machines(2, "node"))
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok && pod.Name == "stuck" {
			pod.DeletionTimestamp, pod.Finalizers = new(metav1.NewTime(time.Now().Add(-time.Hour))), []string{"tests/stuck"}
		}
	}
	after := newCrowd(t, objects...).releasing()
	require.Equal(t, []string{"node/card-1"}, after.settle("urgent", share("10", "35Gi"), withPriority(urgent)))
	after.gone("other")
}

// The pod that others gave way to finds room elsewhere, and nothing else happens that
// would have the others tried again.
func TestRoomOfWhoIsElsewhereIsGivenAwayAtOnce(t *testing.T) {
	t.Parallel()
	keep := corev1.Taint{Key: "tests/keep", Effect: corev1.TaintEffectNoSchedule}
	second := machine("second", 1)
	second[0].(*corev1.Node).Spec.Taints = []corev1.Taint{keep}
	c := newCrowd(t, append(second, machines(1, "node")...)...)
	c.givesWay(share("10", "30Gi"), share("10", "35Gi"))
	require.Equal(t, "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) without suitable cards. "+
		"no card has 10 percent compute and 6 GiB free: 1 card lacks memory",
		c.refusedAs("small", share("10", "6Gi")), "it is said though somebody is nominated there")

	pods := c.client.CoreV1().Pods(namespace)
	pod, err := pods.Get(t.Context(), "urgent", metav1.GetOptions{})
	require.NoError(t, err)
	pod.Spec.Tolerations = []corev1.Toleration{{Key: keep.Key, Operator: corev1.TolerationOpExists}}
	_, err = pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"second/card-0"}, c.placed("urgent"))
	require.Equal(t, []string{"node/card-0"}, c.placed("small"))
}

func (c *crowd) uid(claim string) types.UID {
	c.Helper()
	got, err := c.client.ResourceV1().ResourceClaims(namespace).Get(c.Context(), claim, metav1.GetOptions{})
	require.NoError(c, err)
	require.Len(c, got.Status.ReservedFor, 1)
	return got.Status.ReservedFor[0].UID
}

// objects are the ones that outlive the scheduler, with what there is in nodes.
func (c *crowd) objects(all []runtime.Object) []runtime.Object {
	c.Helper()
	pods, err := c.client.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	claims, err := c.client.ResourceV1().ResourceClaims(namespace).List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	for i := range claims.Items {
		all = append(all, &claims.Items[i])
	}
	for i := range pods.Items {
		all = append(all, &pods.Items[i])
	}
	return all
}

// Two pods wait for one claim that is to be allocated.
func TestOneGivesWayForTwoWithOneClaim(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(2, "node")...)
	victims := []string{"victim-0", "victim-1"}
	for i, name := range victims {
		c.settle(name, onCard(i, share("60", "20Gi")))
	}
	c.create(share("60", "20Gi").claim("shared"))
	waiting := []string{"urgent-1", "urgent-2"}
	for _, name := range waiting {
		c.comeWith(name, "shared", withPriority(urgent))
		c.nominated(name)
	}
	var left []string
	c.until("one of them is gone", func() string {
		left = slices.DeleteFunc(slices.Clone(victims), func(name string) bool {
			_, err := c.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		return map[bool]string{true: "both are there"}[len(left) == 2]
	})
	require.NotEmpty(t, c.refusedAs("late", share("60", "20Gi")), "it is tried after them")
	require.Len(t, left, 1)
	for _, name := range victims {
		if name != left[0] {
			c.release(name)
		}
	}
	for _, name := range waiting {
		c.bound(name)
	}
	c.there(left...)
}

// comeWith makes a pod that uses a claim which there is.
func (c *crowd) comeWith(name, claim string, options ...podOption) {
	c.Helper()
	pod := want{}.pod(name)
	pod.Spec.ResourceClaims[0].ResourceClaimName = &claim
	for _, o := range options {
		o(pod)
	}
	c.create(pod)
}

// firstOf asks for the first of several shares that can be had.
func firstOf(name string, of ...want) *resourceapi.ResourceClaim {
	claim := of[0].claim(name)
	request := &claim.Spec.Devices.Requests[0]
	for i, a := range of {
		e := a.claim(name).Spec.Devices.Requests[0].Exactly
		request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
			Name: fmt.Sprint("choice-", i), DeviceClassName: e.DeviceClassName, AllocationMode: e.AllocationMode, Count: e.Count, Capacity: e.Capacity,
		})
	}
	request.Exactly = nil
	return claim
}

// What only the allocator understands has others give way, too, and what they leave is
// kept for it.
func TestOthersGiveWayForWhatHasNoModel(t *testing.T) {
	t.Parallel()
	all := want{class: "card"}.claim("urgent")
	all.Spec.Devices.Requests[0].Exactly.AllocationMode, all.Spec.Devices.Requests[0].Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
	mixed := firstOf("urgent", share("50", "10Gi"), share("40", "9Gi"))
	mixed.Spec.Devices.Requests = append(mixed.Spec.Devices.Requests, share("30", "5Gi").claim("").Spec.Devices.Requests[0])
	mixed.Spec.Devices.Requests[1].Name = "exact"
	for name, claim := range map[string]*resourceapi.ResourceClaim{
		"the first of several":           firstOf("urgent", share("80", "20Gi"), share("50", "12Gi")),
		"all cards":                      all,
		"the first of several, and more": mixed,
		"an extended resource":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, machines(1, "node")...)
			c.settle("victim", share("90", "30Gi"))
			if claim != nil {
				c.create(claim)
				c.comeWith("urgent", "urgent", withPriority(urgent))
			} else {
				pod := want{}.pod("urgent")
				withPriority(urgent)(pod)
				pod.Spec.ResourceClaims = nil
				one := corev1.ResourceList{"tranche.dev/gpu": resource.MustParse("1")}
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: one, Requests: one}
				c.create(pod)
			}
			c.gone("victim")
			c.nominated("urgent")
			require.NotEmpty(t, c.refusedAs("late", share("5", "8Gi")))
			c.release("victim")
			c.bound("urgent")
		})
	}
}
