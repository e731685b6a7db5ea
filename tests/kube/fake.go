// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dra/tranche/pkg/card/sim"
	"github.com/tranche-dra/tranche/pkg/slices"
)

// FakeNode is a node that does not exist, with simulated cards. A cluster that
// runs with --fake-nodes keeps it Ready.
type FakeNode struct {
	Name   string
	Labels map[string]string
	// Cards are as in a fleet file.
	Cards []sim.Entry
}

// A30s is that many cards of 24 GiB.
func A30s(count int) []sim.Entry {
	return []sim.Entry{{Facts: sim.Facts{Model: "A30"}, Count: &count}}
}

// Node is the object of the node.
func (n FakeNode) Node() *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: n.Name}
	maps.Copy(labels, n.Labels)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}
}

// Slices are what the driver publishes for the cards. They are of the pool's
// first generation, and belong to the given node.
func (n FakeNode) Slices(node *corev1.Node) ([]*resourceapi.ResourceSlice, error) {
	fleet := sim.Fleet{Cards: n.Cards}
	resources, notes := slices.Build(fleet.Present(n.Name), slices.Options{NodeName: n.Name, Shareable: true})
	if len(notes) > 0 {
		return nil, fmt.Errorf("publish cards of node %s: %v", n.Name, notes)
	}
	pool := resources.Pools[n.Name]
	var objects []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		objects = append(objects, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-%d", n.Name, Driver, i),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true),
				}},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: Driver, NodeName: &node.Name, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return objects, nil
}

// Devices are the names of the cards, by index.
func (n FakeNode) Devices() []string {
	fleet := sim.Fleet{Cards: n.Cards}
	var names []string
	for _, c := range fleet.Present(n.Name) {
		names = append(names, c.DeviceName())
	}
	return names
}

// CreateFakeNode creates the node and publishes its cards.
func CreateFakeNode(ctx context.Context, client kubernetes.Interface, n FakeNode) error {
	node, err := client.CoreV1().Nodes().Create(ctx, n.Node(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create fake node: %w", err)
	}
	published, err := n.Slices(node)
	if err != nil {
		return err
	}
	for _, s := range published {
		if _, err := client.ResourceV1().ResourceSlices().Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("publish cards of node %s: %w", n.Name, err)
		}
	}
	return nil
}

// DeleteFakeNode deletes the node and what it publishes. Pods there are lost
// with it, so they should go first.
func DeleteFakeNode(ctx context.Context, client kubernetes.Interface, name string) error {
	selector := metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + name}
	err := errors.Join(
		client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, selector),
		client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
	)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
