// SPDX-License-Identifier: Apache-2.0

package slices_test

import (
	"strings"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// requireAccepted checks the rules of the API server (pkg/apis/resource/validation
// in k8s.io/kubernetes 1.37, which cannot be imported from here).
func requireAccepted(t require.TestingT, resources resourceslice.DriverResources) {
	for _, pool := range resources.Pools {
		require.Zero(t, pool.Generation, "the publishing helper counts generations")
		require.NotEmpty(t, pool.Slices, "a pool without slices is taken for a driver that is not there")
		names := map[string]bool{}
		for _, s := range pool.Slices {
			limit := resourceapi.ResourceSliceMaxDevices
			for _, d := range s.Devices {
				require.False(t, names[d.Name], "device %s twice", d.Name)
				names[d.Name] = true
				if len(d.Taints) > 0 {
					limit = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
				}
				requireDeviceAccepted(t, d)
			}
			require.LessOrEqual(t, len(s.Devices), limit)
		}
	}
}

func requireDeviceAccepted(t require.TestingT, d resourceapi.Device) {
	require.Empty(t, validation.IsDNS1123Label(d.Name))
	require.LessOrEqual(t, len(d.Attributes)+len(d.Capacity), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice)
	for name, a := range d.Attributes {
		requireNameAccepted(t, name)
		set := 0
		if a.IntValue != nil {
			set++
		}
		if a.StringValue != nil {
			set++
			require.LessOrEqual(t, len(*a.StringValue), resourceapi.DeviceAttributeMaxValueLength, name)
			require.NotEmpty(t, *a.StringValue, name)
			require.Equal(t, strings.ToValidUTF8(*a.StringValue, "?"), *a.StringValue, name)
		}
		if a.VersionValue != nil {
			set++
			_, err := version.ParseSemantic(*a.VersionValue)
			require.NoError(t, err, name)
			require.LessOrEqual(t, len(*a.VersionValue), resourceapi.DeviceAttributeMaxValueLength)
		}
		require.Equal(t, 1, set, "attribute %s has exactly one value", name)
	}
	shared := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	for name, c := range d.Capacity {
		requireNameAccepted(t, name)
		require.Positive(t, c.Value.Sign(), name)
		if !shared {
			require.Nil(t, c.RequestPolicy, "a policy is refused on a device that is allocated once")
			continue
		}
		require.NotNil(t, c.RequestPolicy, name)
		requirePolicyAccepted(t, c.Value, *c.RequestPolicy)
	}
	require.LessOrEqual(t, len(d.Taints), resourceapi.DeviceTaintsMaxLength)
	for _, taint := range d.Taints {
		require.Empty(t, content.IsLabelKey(taint.Key))
		require.Empty(t, content.IsLabelValue(taint.Value))
		require.Contains(t, []resourceapi.DeviceTaintEffect{resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute}, taint.Effect)
		require.Nil(t, taint.TimeAdded, "the API server sets the time")
	}
}

func requireNameAccepted(t require.TestingT, name resourceapi.QualifiedName) {
	domain, id, qualified := strings.Cut(string(name), "/")
	if !qualified {
		id = domain
	} else {
		require.LessOrEqual(t, len(domain), resourceapi.DeviceMaxDomainLength)
		require.Empty(t, validation.IsDNS1123Subdomain(domain))
	}
	require.LessOrEqual(t, len(id), resourceapi.DeviceMaxIDLength)
	require.Empty(t, content.IsCIdentifier(id))
}

func requirePolicyAccepted(t require.TestingT, value resource.Quantity, p resourceapi.CapacityRequestPolicy) {
	require.NotNil(t, p.Default)
	if r := p.ValidRange; r != nil {
		require.Empty(t, p.ValidValues, "one kind of policy only")
		low, high, step, otherwise := r.Min.Value(), r.Max.Value(), r.Step.Value(), p.Default.Value()
		require.Positive(t, step)
		require.GreaterOrEqual(t, low, int64(0))
		require.LessOrEqual(t, low+step, value.Value(), "min+step is at most the value")
		require.LessOrEqual(t, high, value.Value())
		require.LessOrEqual(t, low, otherwise)
		require.LessOrEqual(t, otherwise, high)
		require.Zero(t, (high-low)%step, "max is min plus steps")
		require.Zero(t, (otherwise-low)%step, "the default is min plus steps")
		return
	}
	require.NotEmpty(t, p.ValidValues)
	require.LessOrEqual(t, len(p.ValidValues), 10)
	found := false
	for i, v := range p.ValidValues {
		require.LessOrEqual(t, v.Cmp(value), 0)
		require.True(t, i == 0 || p.ValidValues[i-1].Cmp(v) < 0, "ascending and different")
		found = found || v.Cmp(*p.Default) == 0
	}
	require.True(t, found, "the default is one of the valid values")
}
