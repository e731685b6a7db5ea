// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	uidA = "8b101b5f-9bfc-453d-9d43-83ec3d61b3d8"
	uidB = "0f7c1d2e-3a4b-4c5d-8e6f-112233445566"
)

var (
	cardA = card.Card{
		UUID: "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000", Vendor: card.VendorNVIDIA, ProductName: "NVIDIA A10",
		PCIBusID: "00000000:1b:00.0", Memory: 24064, Simulated: true,
	}
	cardB = card.Card{
		UUID: "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000001", Vendor: card.VendorNVIDIA, ProductName: "NVIDIA A10",
		PCIBusID: "00000000:1c:00.0", Memory: 24064, Simulated: true, Minor: 1, Index: 1,
	}
)

func claim(uid string) share.Claim {
	return share.Claim{UID: uid, Namespace: "team-a", Name: "notebook"}
}

// shareOf is a share of 30 % and 8 GiB.
func shareOf(uid, request, shareID string, c card.Card) share.Share {
	return share.Share{
		ID: share.ID{
			Claim: claim(uid), Request: request, Pool: "node-1", Device: c.DeviceName(), ShareID: shareID,
		},
		Card:   c.UUID,
		Limits: share.Limits{Cores: 30, Memory: 8192},
		Policy: share.GuaranteedBurst, Class: share.NoClass, BurstCeiling: card.WholeCompute,
	}
}

func deviceOf(s share.Share, c card.Card) Device {
	return Device{Share: s, Card: c, HostDir: "/var/lib/tranche/shares/" + string(s.Key())}
}
