// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

type anyClass struct{}

func (anyClass) Get(string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
		CEL: &resourceapi.CELDeviceSelector{Expression: "device.driver == 'gpu.tranche.dev'"},
	}}}}, nil
}

func (a anyClass) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

const modelNode = "node"

// drawCards are cards of one node, some of which are only given whole.
func drawCards(t *rapid.T) *resourceapi.ResourceSlice {
	var cards []card.Card
	for i := range rapid.IntRange(1, 4).Draw(t, "cards") {
		cards = append(cards, card.Card{
			UUID: card.UUID(fmt.Sprintf("card-%d", i)), Index: i, Vendor: card.VendorNVIDIA, ProductName: "A100",
			ComputeCapability: "8.0", DriverVersion: "580.65.06", CUDAVersion: "13.0",
			Memory:    card.MiB(rapid.IntRange(2, 8).Draw(t, "GiB")) << 10,
			WholeOnly: rapid.IntRange(0, 9).Draw(t, "whole only") == 0,
		})
	}
	resources, _ := published.Build(cards, published.Options{NodeName: modelNode, Shareable: true, Slots: rapid.IntRange(1, 4).Draw(t, "slots")})
	name := modelNode
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DriverName, NodeName: &name, Devices: resources.Pools[modelNode].Slices[0].Devices,
			Pool: resourceapi.ResourcePool{Name: modelNode, Generation: 1, ResourceSliceCount: 1},
		},
	}
}

func drawRequests(t *rapid.T, count int) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "team", UID: "uid"}}
	for i := range count {
		exactly := &resourceapi.ExactDeviceRequest{
			DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount,
			Count: int64(rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "count")),
		}
		requests := map[resourceapi.QualifiedName]resource.Quantity{}
		for _, of := range []struct {
			name   resourceapi.QualifiedName
			values []string
		}{
			{published.CapacityCores, []string{"", "0", "25", "40", "100", "101", "1500m", "-5"}},
			{published.CapacityOfflineCores, []string{"", "", "", "0", "60"}},
			{published.CapacityMemory, []string{"", "1Mi", "1Gi", "3Gi", "2047Mi", "1500M", "8Gi", "1Ei"}},
			{published.CapacitySlots, []string{"", "", "", "", "1", "0", "2"}},
			{"memroy", []string{"", "", "", "", "", "", "", "", "", "1Gi"}},
		} {
			if value := rapid.SampledFrom(of.values).Draw(t, string(of.name)); value != "" {
				requests[of.name] = resource.MustParse(value)
			}
		}
		if len(requests) > 0 {
			exactly.Capacity = &resourceapi.CapacityRequirements{Requests: requests}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: fmt.Sprint("r", i), Exactly: exactly})
	}
	return claim
}

// judge runs model and allocator on the same state.
func judge(t *rapid.T, slice *resourceapi.ResourceSlice, state *structured.AllocatedState, claim *resourceapi.ResourceClaim,
	policies placement.Policies,
) (*finding, []resourceapi.AllocationResult, error) {
	features := feature.Features{EnableDRAConsumableCapacity: true, EnableDRADeviceTaints: true, EnableDRAPrioritizedList: true}
	w := &wish{complete: true}
	w.addClaim(claim, anyClass{})
	a := &attempt{
		policies: policies, wish: w, matcher: newMatcher(features), ledger: newLedger(nil), inventory: &inventory{},
		allocated: state, findings: newFindings(),
	}
	ordered := a.arrange(t.Context(), []*resourceapi.ResourceSlice{slice})
	allocator, err := structured.NewAllocator(t.Context(), dynamicresources.AllocatorFeatures(features), *state, anyClass{}, ordered, a.matcher.compiled)
	require.NoError(t, err)
	got, err := allocator.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: modelNode}}, []*resourceapi.ResourceClaim{claim})
	return a.find(t.Context(), modelNode), got, err
}

// take adds what was allocated to the state.
func take(state *structured.AllocatedState, results []resourceapi.AllocationResult) {
	for _, result := range results {
		for i := range result.Devices.Results {
			r := &result.Devices.Results[i]
			book(state, structured.MakeDeviceID(r.Driver, r.Pool, r.Device), r)
		}
	}
}

// The model is believed where it says that it is certain, so it must say what the
// allocator says; and the allocator takes the card that the model chose.
func TestModelAndAllocatorAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slice := drawCards(t)
		state := newState()
		policies := placement.Policies{Node: placement.Binpack, Card: rapid.SampledFrom(placement.Known()).Draw(t, "policy")}
		for range rapid.IntRange(1, 12).Draw(t, "claims") {
			claim := drawRequests(t, rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "requests"))
			f, got, err := judge(t, slice, state, claim, policies)
			if f.certain {
				require.Equal(t, err == nil && got != nil, f.fits, "because %q, shortage %s, error %v", f.because, f.shortage, err)
			}
			if f.certain && f.fits && len(claim.Spec.Devices.Requests) == 1 {
				var devices []string
				for _, r := range got[0].Devices.Results {
					devices = append(devices, r.Device)
				}
				var chosen []string
				for _, use := range f.choice {
					chosen = append(chosen, slice.Spec.Devices[use.Card].Name)
				}
				require.ElementsMatch(t, chosen, devices)
			}
			take(state, got)
		}
	})
}
