// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/card/sim"
	"github.com/tranche-dra/tranche/tests/kube"
)

// published is a node with a card to share and one that is whole.
func published(t *testing.T) []resourceapi.ResourceSlice {
	t.Helper()
	node := kube.FakeNode{Name: "n", Cards: append(kube.A30s(1), sim.Entry{Facts: sim.Facts{Model: "A30", WholeOnly: new(true)}})}
	made, err := node.Slices(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}})
	require.NoError(t, err)
	require.Len(t, made, 1)
	require.Len(t, made[0].Spec.Devices, 2)
	require.EqualValues(t, 1, made[0].Spec.Pool.ResourceSliceCount)
	return []resourceapi.ResourceSlice{*made[0]}
}

func claim(device string, of kube.Amounts) resourceapi.ResourceClaim {
	r := resourceapi.DeviceRequestAllocationResult{Driver: kube.Driver, Pool: "n", Device: device}
	r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{}
	for name, amount := range of {
		r.ConsumedCapacity[name] = resource.MustParse(amount)
	}
	return resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{r}},
	}}}
}

func TestOverCommitmentIsFound(t *testing.T) {
	t.Parallel()
	slices := published(t)
	shared, whole := slices[0].Spec.Devices[0].Name, slices[0].Spec.Devices[1].Name
	for name, tc := range map[string]struct {
		claims []resourceapi.ResourceClaim
		want   string
	}{
		"nothing is held":            {nil, ""},
		"a claim waits":              {[]resourceapi.ResourceClaim{{}}, ""},
		"exactly all of it":          {[]resourceapi.ResourceClaim{claim(shared, kube.Share("60", "20Gi")), claim(shared, kube.Share("40", "4Gi"))}, ""},
		"one percent too much":       {[]resourceapi.ResourceClaim{claim(shared, kube.Share("60", "20Gi")), claim(shared, kube.Share("41", "4Gi"))}, "cores of"},
		"one MiB too much":           {[]resourceapi.ResourceClaim{claim(shared, kube.Share("60", "20Gi")), claim(shared, kube.Share("40", "4097Mi"))}, "memory of"},
		"a whole card once":          {[]resourceapi.ResourceClaim{claim(whole, nil)}, ""},
		"a whole card twice":         {[]resourceapi.ResourceClaim{claim(whole, nil), claim(whole, nil)}, "which is whole"},
		"a card that does not exist": {[]resourceapi.ResourceClaim{claim("gpu-x", kube.Share("1", "1Gi"))}, "not published"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := kube.HoldingsOf(slices, tc.claims).OverCommitted()
			if tc.want == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], tc.want)
		})
	}
}
