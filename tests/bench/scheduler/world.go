// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/tests/kube"
)

const (
	namespace = "bench"
	// workers write to the API server at once.
	workers = 16
	// cardMemory is that of an A30.
	cardMemory = 24
)

// world is what there is before a burst.
type world struct{ nodes, cards, shares int }

// cluster is the API server, and how to reach what else serves.
type cluster struct {
	kubernetes.Interface
	config *rest.Config
}

func connect() (*cluster, error) {
	config, err := kube.Config()
	if err != nil {
		return nil, err
	}
	// Nobody waits for this program, and it takes as little of the machine as it can.
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster{client, config}, nil
}

// prepare makes the world: an API server that nothing else works with.
func (c *cluster) prepare(ctx context.Context, w world) error {
	root, err := kube.Repository()
	if err != nil {
		return err
	}
	if _, err := kube.Kubectl(ctx, "apply", "-k", filepath.Join(root, "deviceclasses")); err != nil {
		return err
	}
	if err := c.makeNamespace(ctx); err != nil {
		return err
	}
	for _, component := range []string{"scheduler", "kubelet", "controller-manager", "containerd"} {
		if err := kube.Control(ctx, "stop", component); err != nil {
			return err
		}
	}
	if err := c.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete the real node: %w", err)
	}
	if err := each(ctx, w.nodes, func(ctx context.Context, i int) error { return c.makeNode(ctx, w, i) }); err != nil {
		return err
	}
	held := hold(w)
	return each(ctx, len(held), func(ctx context.Context, i int) error { return c.makeHeld(ctx, i, held[i]) })
}

// makeNamespace waits for the account that pods there need.
func (c *cluster) makeNamespace(ctx context.Context) error {
	if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return until(ctx, time.Minute, "the namespace has its service account", func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func (w world) node(i int) kube.FakeNode {
	return kube.FakeNode{Name: nodeName(i), Cards: kube.A30s(w.cards)}
}

// makeNode makes a node that is Ready for as long as no controller looks at it.
func (c *cluster) makeNode(ctx context.Context, w world, i int) error {
	if err := kube.CreateFakeNode(ctx, c, w.node(i)); err != nil {
		return err
	}
	node, err := c.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at node: %w", err)
	}
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "FakeNode"}}
	if node, err = c.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("make node Ready: %w", err)
	}
	node.Spec.Taints = nil // not-ready, from before
	if _, err := c.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("take the taint off a node: %w", err)
	}
	return nil
}

// ask is a share's size.
type ask struct{ cores, memory int64 }

// someAsk is one of the sizes that shares usually have.
func someAsk(random *rand.Rand) ask {
	cores := []int64{5, 10, 20, 25, 30, 50}
	memory := []int64{1, 2, 4, 6, 8}
	return ask{cores[random.IntN(len(cores))], memory[random.IntN(len(memory))]}
}

func (a ask) amounts() kube.Amounts {
	return kube.Share(fmt.Sprint(a.cores), fmt.Sprintf("%dGi", a.memory))
}

// holding is a share that somebody has.
type holding struct {
	ask
	node, card int
}

// hold places one share on every node, further ones on nodes at random, and there
// on the first card with room, as the stock scheduler does. The same world is
// always filled alike.
func hold(w world) []holding {
	random := rand.New(rand.NewPCG(1, 2))
	type room struct{ cores, memory, slots int64 }
	free := make([]room, w.nodes*w.cards)
	for i := range free {
		free[i] = room{int64(card.WholeCompute), cardMemory, 16}
	}
	var held []holding
	for len(held) < w.shares {
		a, node := someAsk(random), len(held)
		if node >= w.nodes {
			node = random.IntN(w.nodes)
		}
		for n := range w.cards {
			r := &free[node*w.cards+n]
			if r.cores >= a.cores && r.memory >= a.memory && r.slots >= 1 {
				r.cores, r.memory, r.slots = r.cores-a.cores, r.memory-a.memory, r.slots-1
				held = append(held, holding{a, node, n})
				break
			}
		}
	}
	return held
}

// makeHeld makes a bound pod and its allocated claim, as a scheduler leaves them.
func (c *cluster) makeHeld(ctx context.Context, i int, h holding) error {
	name := fmt.Sprintf("held-%05d", i)
	pod := podOf(name)
	pod.Spec.NodeName = nodeName(h.node)
	pod, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	claim := claimOf(name, h.ask)
	claim.Finalizers = []string{resourceapi.Finalizer}
	if claim, err = c.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create claim: %w", err)
	}
	claim.Status = heldStatus(h, pod)
	if _, err := c.ResourceV1().ResourceClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("allocate claim: %w", err)
	}
	return nil
}

func heldStatus(h holding, pod *corev1.Pod) resourceapi.ResourceClaimStatus {
	node := kube.FakeNode{Name: nodeName(h.node), Cards: kube.A30s(h.card + 1)}
	consumed := map[resourceapi.QualifiedName]resource.Quantity{"slots": resource.MustParse("1"), "offlineCores": resource.MustParse("0")}
	for name, amount := range h.amounts() {
		consumed[name] = resource.MustParse(amount)
	}
	shareID := uuid.NewUUID()
	return resourceapi.ResourceClaimStatus{
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
		Allocation: &resourceapi.AllocationResult{
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name},
			}}}}},
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: kube.Driver, Pool: node.Name, Device: node.Devices()[h.card], ShareID: &shareID, ConsumedCapacity: consumed,
			}}},
		},
	}
}

func podOf(name string) *corev1.Pod {
	pod := kube.Sleeper(name)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return pod
}

func claimOf(name string, a ask) *resourceapi.ResourceClaim {
	return claimFor(name, kube.Request("gpu", "share.tranche.dev", 1, a.amounts()))
}

func claimFor(name string, request resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}},
	}
}

// each calls do for 0 to n-1, several at once, until one fails.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// until asks until there is no error.
func until(ctx context.Context, patience time.Duration, what string, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(err, last))
	}
	return nil
}
