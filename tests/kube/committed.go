// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Device names a card in the cluster.
type Device struct{ Pool, Name string }

// Holdings is what claims hold of every published card.
type Holdings struct {
	// Capacity of the cards, Held of them by all claims together, and how many
	// Shares that are.
	Capacity, Held map[Device]map[resourceapi.QualifiedName]resource.Quantity
	Shares         map[Device]int
	// Once are the cards that only one claim may hold.
	Once map[Device]bool
}

// HoldingsOf adds up what the claims say that they were given. It knows
// nothing of how a scheduler counts.
func HoldingsOf(published []resourceapi.ResourceSlice, claims []resourceapi.ResourceClaim) Holdings {
	h := Holdings{
		Capacity: map[Device]map[resourceapi.QualifiedName]resource.Quantity{},
		Held:     map[Device]map[resourceapi.QualifiedName]resource.Quantity{},
		Shares:   map[Device]int{}, Once: map[Device]bool{},
	}
	for _, s := range published {
		if s.Spec.Driver != Driver {
			continue
		}
		for _, d := range s.Spec.Devices {
			device := Device{s.Spec.Pool.Name, d.Name}
			h.Capacity[device] = map[resourceapi.QualifiedName]resource.Quantity{}
			h.Once[device] = d.AllowMultipleAllocations == nil || !*d.AllowMultipleAllocations
			for name, capacity := range d.Capacity {
				h.Capacity[device][name] = capacity.Value
			}
		}
	}
	for i := range claims {
		if claims[i].Status.Allocation == nil {
			continue
		}
		for _, r := range claims[i].Status.Allocation.Devices.Results {
			if r.Driver == Driver {
				h.add(r)
			}
		}
	}
	return h
}

func (h Holdings) add(r resourceapi.DeviceRequestAllocationResult) {
	device := Device{r.Pool, r.Device}
	h.Shares[device]++
	if h.Held[device] == nil {
		h.Held[device] = map[resourceapi.QualifiedName]resource.Quantity{}
	}
	for name, amount := range r.ConsumedCapacity {
		held := h.Held[device][name]
		held.Add(amount)
		h.Held[device][name] = held
	}
}

// OverCommitted names every card that claims hold more of than there is, in
// order. There must be none.
func (h Holdings) OverCommitted() []string {
	var found []string
	for device, shares := range h.Shares {
		capacity, published := h.Capacity[device]
		switch {
		case !published:
			found = append(found, fmt.Sprintf("%d shares of %s in pool %s, which is not published", shares, device.Name, device.Pool))
		case h.Once[device] && shares > 1:
			found = append(found, fmt.Sprintf("%d shares of %s in pool %s, which is whole", shares, device.Name, device.Pool))
		}
		for name, held := range h.Held[device] {
			if whole := capacity[name]; published && held.Cmp(whole) > 0 {
				found = append(found, fmt.Sprintf("%s of %s in pool %s: %s of %s", name, device.Name, device.Pool, held.String(), whole.String()))
			}
		}
	}
	slices.Sort(found)
	return found
}

// HoldingsNow reads slices and claims of the whole cluster.
func HoldingsNow(ctx context.Context, client kubernetes.Interface) (Holdings, error) {
	published, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return Holdings{}, fmt.Errorf("list slices: %w", err)
	}
	claims, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return Holdings{}, fmt.Errorf("list claims: %w", err)
	}
	return HoldingsOf(published.Items, claims.Items), nil
}
