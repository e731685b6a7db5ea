// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/placement"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

// unusual slices have what the model does not know: tranche-node publishes none
// of it, and the allocator decides where somebody else does.
func unusual(s *resourceapi.ResourceSliceSpec) bool {
	return len(s.SharedCounters) > 0 || s.PerDeviceNodeSelection != nil
}

// cardOf models a device as tranche-node publishes it. False says that some part
// of it is of another form, and only the allocator can tell what it means.
func cardOf(d *resourceapi.Device) (placement.Card, bool) {
	c := placement.Card{Name: d.Name, Model: textOf(d.Attributes[published.AttributeProductName])}
	usual := len(d.ConsumesCounters) == 0 && len(d.BindingConditions) == 0 && d.NodeName == nil && d.NodeSelector == nil
	if d.AllowMultipleAllocations == nil || !*d.AllowMultipleAllocations {
		c.WholeOnly = true
		c.Total = placement.Amount{Compute: placement.WholeCompute, Slots: 1}
		if memory, ok := d.Capacity[claims.Memory]; ok {
			c.Total.Memory = card.MiB(memory.Value.Value() >> 20)
		}
		c.Free = c.Total
		return c, usual
	}
	for name, capacity := range d.Capacity {
		value := capacity.Value.Value()
		policy := capacity.RequestPolicy
		switch name {
		case claims.Cores:
			c.Total.Compute = placement.FromPercent(card.Percent(value))
			usual = usual && value == int64(card.WholeCompute) && isRange(policy, value, 0, value, 1)
		case claims.OfflineCores:
			c.Total.Offline = placement.FromPercent(card.Percent(value))
			usual = usual && value == int64(card.WholeCompute) && isRange(policy, 0, 0, value, 1)
		case claims.Memory:
			c.Total.Memory = card.MiB(value >> 20)
			usual = usual && isRange(policy, value, published.MinMemory.Bytes(), value, card.MiB(1).Bytes())
		case published.CapacitySlots:
			c.Total.Slots = int32(min(value, maxSlots)) //nolint:gosec // bounded
			usual = usual && value <= maxSlots && policy != nil && policy.ValidRange == nil &&
				len(policy.ValidValues) == 1 && policy.ValidValues[0].CmpInt64(1) == 0 && is(policy.Default, 1)
		default:
			usual = false
		}
	}
	c.Free = c.Total
	return c, usual && c.Total.Compute > 0 && c.Total.Memory > 0 && c.Total.Slots > 0
}

// maxSlots is far above what a card can be published with.
const maxSlots = 1 << 16

func isRange(p *resourceapi.CapacityRequestPolicy, otherwise, low, high, step int64) bool {
	if p == nil || p.ValidRange == nil || len(p.ValidValues) > 0 {
		return false
	}
	r := p.ValidRange
	return is(p.Default, otherwise) && is(r.Min, low) && is(r.Max, high) && is(r.Step, step)
}

func is(q *resource.Quantity, value int64) bool { return q != nil && q.CmpInt64(value) == 0 }

func textOf(a resourceapi.DeviceAttribute) string {
	if a.StringValue == nil {
		return ""
	}
	return *a.StringValue
}
