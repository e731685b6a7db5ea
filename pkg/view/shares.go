// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	stdslices "slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/slices"
)

func sharesOf(claims []resourceapi.ResourceClaim, cards cardSet) []Share {
	shares := []Share{}
	for i := range claims {
		claim := &claims[i]
		if claim.Status.Allocation == nil {
			continue
		}
		devices := &claim.Status.Allocation.Devices
		for j := range devices.Results {
			result := &devices.Results[j]
			if result.Driver == slices.DriverName && !isAdmin(result) {
				shares = append(shares, shareOf(claim, result, devices.Config, cards))
			}
		}
	}
	stdslices.SortStableFunc(shares, func(a, b Share) int {
		return cmp.Or(
			cmp.Compare(a.Node, b.Node), compareIndex(a.Index, b.Index), cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim),
			cmp.Compare(a.Request, b.Request), cmp.Compare(a.ShareID, b.ShareID))
	})
	return shares
}

// isAdmin tells whether the result only looks at a card. It holds nothing.
func isAdmin(result *resourceapi.DeviceRequestAllocationResult) bool {
	return result.AdminAccess != nil && *result.AdminAccess
}

func shareOf(claim *resourceapi.ResourceClaim, result *resourceapi.DeviceRequestAllocationResult,
	configs []resourceapi.DeviceAllocationConfiguration, cards cardSet,
) Share {
	s := Share{
		// The name of the pool is that of the node.
		Node: result.Pool, Device: result.Device,
		Namespace: claim.Namespace, Claim: claim.Name, ClaimUID: string(claim.UID), Request: result.Request,
		claim: claim,
	}
	c, found := cards.at(result.Pool, result.Device)
	if found {
		s.UUID, s.Index = c.UUID, c.Index
	}
	if result.ShareID != nil {
		s.ShareID = string(*result.ShareID)
		s.Cores = percent(result.ConsumedCapacity[slices.CapacityCores])
		s.OfflineCores = percent(result.ConsumedCapacity[slices.CapacityOfflineCores])
		s.Memory = mebibytes(result.ConsumedCapacity[slices.CapacityMemory])
		s.slots = count(result.ConsumedCapacity[slices.CapacitySlots])
		s.Whole = found && c.Memory != nil && s.Cores == card.WholeCompute && s.Memory == c.Memory.Total
	} else {
		s.Whole, s.Cores = true, card.WholeCompute
		if found && c.Memory != nil {
			s.Memory = c.Memory.Total
		}
	}
	if err := s.configure(result, configs); err != nil {
		s.ConfigError = err.Error()
	}
	return s
}

// measured is the policy that the share was prepared with, as the node's arbiter tells with
// its figures; empty where it has told nothing.
func measured(claim *resourceapi.ResourceClaim, result *resourceapi.DeviceRequestAllocationResult) share.Policy {
	id := (*string)(result.ShareID)
	for i := range claim.Status.Devices {
		d := &claim.Status.Devices[i]
		var status v1alpha1.ShareStatus
		if d.Driver == result.Driver && d.Pool == result.Pool && d.Device == result.Device &&
			(d.ShareID == nil) == (id == nil) && (id == nil || *d.ShareID == *id) && d.Data != nil &&
			json.Unmarshal(d.Data.Raw, &status) == nil && status.Kind == v1alpha1.KindShareStatus {
			return status.Policy
		}
	}
	return ""
}

// configure finds policy and class as the node does, as far as the API server
// knows them.
func (s *Share) configure(result *resourceapi.DeviceRequestAllocationResult, all []resourceapi.DeviceAllocationConfiguration) error {
	var layers []*v1alpha1.ShareConfig
	for _, c := range resourceclaim.ConfigForResult(all, *result) {
		if c.Opaque.Driver != slices.DriverName {
			continue
		}
		layer, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
		if err != nil {
			return fmt.Errorf("read configuration of %s: %w", c.Source, err)
		}
		layers = append(layers, layer)
	}
	merged := v1alpha1.Merge(layers...)
	switch {
	case merged.Class != nil:
		s.Class = *merged.Class
	case s.OfflineCores > 0:
		s.Class = share.Offline
	default:
		s.Class = share.NoClass
	}
	if merged.Policy != nil {
		s.Policy = *merged.Policy
	} else {
		s.Policy = measured(s.claim, result)
	}
	if merged.Burst != nil {
		s.BurstCeiling = merged.Burst.Ceiling
	}
	return nil
}
