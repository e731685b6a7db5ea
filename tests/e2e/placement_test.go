// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/tests/kube"
)

// fakeLabel keeps pods on the fake nodes of one test.
const fakeLabel = "e2e.tranche.dev/nodes"

// fakes is a team whose pods go to nodes of its own that do not exist.
type fakes struct {
	team
	nodes []string
}

// newFakes makes so many nodes with so many cards each, and a namespace.
func newFakes(t *testing.T, name string, nodes, cards int) fakes {
	t.Helper()
	f := fakes{}
	for i := range nodes {
		f.nodes = append(f.nodes, fmt.Sprintf("%s-%d", name, i))
	}
	// Before the team: its pods are gone when the nodes go.
	t.Cleanup(func() {
		for _, node := range f.nodes {
			require.NoError(t, kube.DeleteFakeNode(context.Background(), client, node))
		}
	})
	for _, node := range f.nodes {
		require.NoError(t, kube.CreateFakeNode(t.Context(), client, kube.FakeNode{
			Name: node, Labels: map[string]string{fakeLabel: name}, Cards: kube.A30s(cards),
		}))
	}
	for _, node := range f.nodes {
		require.Eventually(t, func() bool {
			n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			return err == nil && len(n.Spec.Taints) == 0 && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
		}, patience, tick, "node %s is Ready", node)
	}
	f.team = newTeam(t, name)
	return f
}

// sleeper is a pod for these nodes with a claim made from the template.
func (f fakes) sleeper(name, template string) *corev1.Pod {
	pod := kube.Sleeper(name)
	pod.Spec.NodeSelector = map[string]string{fakeLabel: f.name}
	kube.Use(pod, 0, "gpu", template)
	return pod
}

// place creates the pods one after the other and returns where each one went.
func (f fakes) place(t *testing.T, pods ...*corev1.Pod) []kube.Device {
	t.Helper()
	var at []kube.Device
	for _, pod := range pods {
		f.create(t, pod)
		f.ready(t, pod.Name)
		at = append(at, f.at(t, pod.Name))
	}
	return at
}

// at is the only card of a pod.
func (f fakes) at(t *testing.T, pod string) kube.Device {
	t.Helper()
	results := f.results(t, pod)
	require.Len(t, results, 1)
	return kube.Device{Pool: results[0].Pool, Name: results[0].Device}
}

// shape says how shares lie: how many there are on each card in use, of each
// node in use, fewest first.
func shape(at []kube.Device) [][]int {
	cards := map[string]map[string]int{}
	for _, device := range at {
		if cards[device.Pool] == nil {
			cards[device.Pool] = map[string]int{}
		}
		cards[device.Pool][device.Name]++
	}
	var all [][]int
	for _, of := range cards {
		var shares []int
		for _, n := range of {
			shares = append(shares, n)
		}
		slices.Sort(shares)
		all = append(all, shares)
	}
	slices.SortFunc(all, slices.Compare[[]int])
	return all
}

// Six small shares on three nodes of two cards, under every combination.
func TestPlacementFollowsBothPolicies(t *testing.T) {
	for name, want := range map[string][][]int{
		"spread-binpack":  {{2}, {2}, {2}},
		"spread-spread":   {{1, 1}, {1, 1}, {1, 1}},
		"binpack-binpack": {{6}},
		"binpack-spread":  {{3, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t, name, 3, 2)
			f.template(t, "small", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("15", "3Gi")))
			var pods []*corev1.Pod
			for i := range 6 {
				pod := f.sleeper(fmt.Sprint("p", i), "small")
				pod.Spec.SchedulerName = "tranche-" + name
				pods = append(pods, pod)
			}
			require.Equal(t, want, shape(f.place(t, pods...)))
		})
	}
}

// One node gets two shares on one card, the other one a single share; then an
// annotation has further shares join the two, but on the other card.
func TestPlacementIsWhatTheDefaultAndAnnotationsSay(t *testing.T) {
	f := newFakes(t, "annotated", 2, 2)
	f.template(t, "small", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("15", "3Gi")))
	plain := f.place(t, f.sleeper("plain-0", "small"), f.sleeper("plain-1", "small"), f.sleeper("plain-2", "small"))
	require.Equal(t, [][]int{{1}, {2}}, shape(plain), "nodes are spread over, cards are packed")

	var pods []*corev1.Pod
	for i := range 2 {
		pod := f.sleeper(fmt.Sprint("annotated-", i), "small")
		pod.Annotations = map[string]string{"tranche.dev/node-policy": "binpack", "tranche.dev/card-policy": "spread"}
		pods = append(pods, pod)
	}
	for _, at := range f.place(t, pods...) {
		require.Equal(t, plain[2].Pool, at.Pool, "the node where more is taken")
		require.NotEqual(t, plain[2].Name, at.Name, "the card there where less is taken")
	}
}

func (f fakes) nodeOf(t *testing.T, pod string) string {
	t.Helper()
	p, err := client.CoreV1().Pods(f.name).Get(t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	return p.Spec.NodeName
}

// On one node of three cards.
func TestPlacementKeepsOnlineAndOfflineApart(t *testing.T) {
	f := newFakes(t, "classes", 1, 3)
	f.template(t, "online", kube.Request("gpu", "online.tranche.dev", 1, kube.Share("20", "2Gi")))
	f.template(t, "offline", kube.Request("gpu", "offline.tranche.dev", 1, kube.Amounts{"cores": "0", "offlineCores": "20", "memory": "2Gi"}))
	at := f.place(t,
		f.sleeper("offline-1", "offline"), f.sleeper("online-1", "online"), f.sleeper("online-2", "online"),
		f.sleeper("offline-2", "offline"), f.sleeper("online-3", "online"),
	)
	require.NotEqual(t, at[0], at[1], "online shares avoid cards with offline work")
	require.NotEqual(t, at[0], at[2])
	require.NotEqual(t, at[1], at[2], "online shares spread")
	require.Equal(t, at[0], at[3], "offline shares pack where no online work is")
	require.NotEqual(t, at[0], at[4], "online shares rather join each other than offline work")
}

// Sums of a node would say that there is room.
func TestPlacementSeesInsideTheCards(t *testing.T) {
	f := newFakes(t, "inside", 2, 2)
	f.template(t, "filler", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("70", "6Gi")))
	f.template(t, "half", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("50", "6Gi")))
	// Both cards of one node are filled to 70, the other node is empty but for one.
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, f.sleeper(fmt.Sprint("filler-", i), "filler"))
	}
	at := f.place(t, pods...)
	full := map[string]int{}
	for _, device := range at {
		full[device.Pool]++
	}
	half := f.place(t, f.sleeper("half", "half"))[0]
	require.Equal(t, 1, full[half.Pool], "60 % are free on the other node too, but on no single card")
	f.create(t, f.sleeper("more", "half"))
	f.ready(t, "more") // the card of "half" has 50 left
	f.create(t, f.sleeper("none", "half"))
	message := f.refused(t, "none")
	require.Contains(t, message, "no card has 50 percent compute and 6 GiB free")
	require.Contains(t, message, "4 cards lack compute")
}

// refused is why the scheduler left a pod waiting, from the pod's event.
func (f fakes) refused(t *testing.T, pod string) string {
	t.Helper()
	var message string
	require.Eventually(t, func() bool {
		events, err := client.CoreV1().Events(f.name).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod + ",reason=FailedScheduling"})
		if err != nil || len(events.Items) == 0 {
			return false
		}
		message = events.Items[len(events.Items)-1].Message
		return true
	}, patience, tick, "pod %s has an event that says why it waits", pod)
	return message
}

// What is missing is said in people's terms, card by card.
func TestPlacementSaysWhatIsMissing(t *testing.T) {
	f := newFakes(t, "reasons", 1, 3)
	f.template(t, "much-memory", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("10", "20Gi")))
	f.template(t, "much-compute", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("80", "20Gi")))
	f.template(t, "wish", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("40", "8Gi")))
	f.template(t, "whole", kube.Request("gpu", "card.tranche.dev", 2, nil))
	f.template(t, "too-many", kube.Request("gpu", "card.tranche.dev", 4, nil))
	f.place(t, f.sleeper("a", "much-memory"), f.sleeper("b", "much-compute"), f.sleeper("c", "much-compute"))
	for template, want := range map[string][]string{
		"wish":     {"no card has 40 percent compute and 8 GiB free", "1 card lacks memory", "2 lack both"},
		"whole":    {"no node has 2 unused cards", "3 cards are in use"},
		"too-many": {"no node has 4 unused cards: 3 cards are in use"},
	} {
		f.create(t, f.sleeper("wants-"+template, template))
		message := f.refused(t, "wants-"+template)
		for _, part := range want {
			require.Contains(t, message, part)
		}
	}
}

// The node that exists takes part as any other: a pod runs there with its share.
func TestPlacementReachesTheRealNode(t *testing.T) {
	f := newFakes(t, "beside", 2, 2)
	f.template(t, "share", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	pod := f.sleeper("real", "share")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: os.Getenv("TRANCHE_CLUSTER_NODE")}
	f.place(t, pod)
	require.Len(t, f.shareFiles(t, "real", "main"), 1)

	// Three pods without a wish find the three nodes.
	nodes := map[string]bool{os.Getenv("TRANCHE_CLUSTER_NODE"): true}
	for i := range 2 {
		name := fmt.Sprint("any-", i)
		pod := f.sleeper(name, "share")
		pod.Spec.NodeSelector = nil
		f.place(t, pod)
		nodes[f.nodeOf(t, name)] = true
	}
	require.Len(t, nodes, 3, "nodes are spread over, whether they exist or not")
}

// everything that is allocated in the cluster fits.
func requireNoOverCommitment(t *testing.T) kube.Holdings {
	t.Helper()
	holdings, err := kube.HoldingsNow(t.Context(), client)
	require.NoError(t, err)
	require.Empty(t, holdings.OverCommitted())
	return holdings
}

// A scheduler that is killed again and again in the middle of a burst leaves
// each pod with one share, and no card with more than it has.
func TestPlacementOutlivesItsSchedulerInABurst(t *testing.T) {
	// 32 cards with room for 6 shares each: 8 of the 200 pods are left over.
	const pods, kills, room = 200, 3, 4 * 8 * (100 / 15)
	f := newFakes(t, "burst", 4, 8)
	f.template(t, "share", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("15", "3Gi")))
	for i := range pods {
		f.create(t, f.sleeper(fmt.Sprintf("p%03d", i), "share"))
	}
	for kill := range kills {
		require.Eventually(t, func() bool { return f.bound(t) > kill*room/(kills+1) }, patience, tick, "the burst goes on")
		ctl(t, "kill", "scheduler")
		requireNoOverCommitment(t)
	}
	require.Eventually(t, func() bool { return f.bound(t) == room }, patience, tick, "all that fit are bound")
	holdings := requireNoOverCommitment(t)
	for device, shares := range holdings.Shares {
		if slices.Contains(f.nodes, device.Pool) {
			require.Equal(t, 100/15, shares, "card %s of %s", device.Name, device.Pool)
		}
	}
	// Those that wait are let in by those that go.
	f.delete(t, f.oneBound(t))
	require.Eventually(t, func() bool { return f.bound(t) == room }, patience, tick, "the next one has its place")
	requireNoOverCommitment(t)
}

// bound counts the pods that have a node.
func (f fakes) bound(t *testing.T) int {
	t.Helper()
	return len(f.onNodes(t))
}

func (f fakes) oneBound(t *testing.T) string {
	t.Helper()
	return f.onNodes(t)[0]
}

func (f fakes) onNodes(t *testing.T) []string {
	t.Helper()
	pods, err := client.CoreV1().Pods(f.name).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			names = append(names, pods.Items[i].Name)
		}
	}
	return names
}
