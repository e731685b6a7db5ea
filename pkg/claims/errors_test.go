// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/share"
)

// The rows change the allocation of one-share.yaml into one that cannot be
// honoured. Each error says what is wrong and what is right.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const (
		percents    = ": whole percents of one card are right, 0 to 100; for whole cards ask for class card.tranche.dev with count: N"
		memoryRange = ": a whole number of Mi is right, from 256Mi to the card's 24576Mi; delete the pod and its claim to have it placed again"
	)
	for name, tc := range map[string]struct {
		change  func(*result)
		configs []resourceapi.DeviceAllocationConfiguration
		says    string
	}{
		"more compute than a card has":          {consume("cores", "101"), nil, "cores of 101" + percents},
		"far more compute than a card has":      {consume("cores", "9223372036854775807"), nil, "cores of 9223372036854775807" + percents},
		"compute past all integers":             {consume("cores", "1e30"), nil, "cores of 1e30" + percents},
		"less than no compute":                  {consume("cores", "-5"), nil, "cores of -5" + percents},
		"parts of a percent":                    {consume("cores", "1.5"), nil, "cores of 1500m" + percents},
		"more offline compute than a card has":  {consume("offlineCores", "101"), nil, "offlineCores of 101" + percents},
		"less than no offline compute":          {consume("offlineCores", "-1"), nil, "offlineCores of -1" + percents},
		"memory between two steps":              {consume("memory", "1000000Ki"), nil, "memory of 1000000Ki is not a whole number of Mi: 976Mi or 977Mi are"},
		"one byte past the least memory":        {consume("memory", "268435457"), nil, "memory of 268435457 is not a whole number of Mi: 256Mi or 257Mi are"},
		"one byte less than the card has":       {consume("memory", "25769803775"), nil, "memory of 25769803775 is not a whole number of Mi: 24575Mi or 24576Mi are"},
		"less memory than a context needs":      {consume("memory", "255Mi"), nil, "memory of 255Mi" + memoryRange},
		"one byte less than the least memory":   {consume("memory", "268435455"), nil, "memory of 268435455" + memoryRange},
		"no memory":                             {consume("memory", "0"), nil, "memory of 0" + memoryRange},
		"less than no memory":                   {consume("memory", "-1Gi"), nil, "memory of -1Gi" + memoryRange},
		"parts of a byte":                       {consume("memory", "4294967296500m"), nil, "memory of 4294967296500m" + memoryRange},
		"more memory than the card has":         {consume("memory", "24577Mi"), nil, "memory of 24577Mi" + memoryRange},
		"one byte more than the card has":       {consume("memory", "25769803777"), nil, "memory of 25769803777" + memoryRange},
		"the largest integer as memory":         {consume("memory", "9223372036854775807"), nil, "memory of 9223372036854775807" + memoryRange},
		"memory past all integers":              {consume("memory", "1e30"), nil, "memory of 1e30" + memoryRange},
		"no compute named, by old Kubernetes":   {func(r *result) { delete(r.ConsumedCapacity, "cores") }, nil, "the allocation names no cores: Kubernetes 1.36 or newer with DRAConsumableCapacity is needed"},
		"no memory named, by old Kubernetes":    {func(r *result) { delete(r.ConsumedCapacity, "memory") }, nil, "the allocation names no memory: Kubernetes 1.36 or newer with DRAConsumableCapacity is needed"},
		"nothing named, by old Kubernetes":      {func(r *result) { r.ConsumedCapacity = nil }, nil, "the allocation names no cores: Kubernetes 1.36"},
		"the pool of another node":              {func(r *result) { r.Pool = "node2" }, nil, `it is in pool "node2", this node's pool is "node1": the claim was allocated for another node, delete the pod`},
		"a card that is not there":              {func(r *result) { r.Device = "gpu-gone" }, nil, "this node has no such card at present: bring it back, or delete the pod and its claim"},
		"adminAccess":                           {func(r *result) { r.AdminAccess = new(true) }, nil, "adminAccess is not offered, since it would still take room on the card: watch cards with the node's metrics"},
		"a class that cannot be read":           {nil, configs(fromClass(`,"polcy":"fixed-share"`)), `configuration of the device class: decode ShareConfig: strict decoding error: unknown field "polcy"`},
		"a claim's configuration that is none":  {nil, configs(fromClass(""), fromClaim(`,"burst":{"ceiling":"50"}`)), "configuration of the claim: decode ShareConfig: "},
		"an empty configuration":                {nil, configs(raw(nil)), "configuration of the claim: decode ShareConfig: exactly one document is expected"},
		"a configuration of a newer release":    {nil, configs(raw([]byte(`{"apiVersion":"tranche.dev/v2","kind":"ShareConfig"}`))), `want apiVersion "tranche.dev/v1alpha1", kind "ShareConfig"`},
		"a policy that nobody knows":            {nil, configs(fromClaim(`,"policy":"fair"`)), `configuration after merging class and claim: policy: Unsupported value: "fair": supported values: "best-effort", "fixed-share", "guaranteed-burst-share", "native-burst-share"`},
		"a class that nobody knows":             {nil, configs(fromClaim(`,"class":"urgent"`)), `class: Unsupported value: "urgent": supported values: "none", "online", "offline"`},
		"class offline with cores":              {nil, configs(fromClass(`,"class":"offline"`)), "class: Invalid value: \"offline\": the share holds 30 of cores: an offline share asks for cores: 0 and offlineCores: N"},
		"class online with offlineCores":        {consume("offlineCores", "5"), configs(fromClass(`,"class":"online"`)), "the share holds 5 of offlineCores: only class offline takes them, others ask for cores"},
		"cores and offlineCores at once":        {consume("offlineCores", "5"), nil, "an offline share asks for cores: 0 and offlineCores: N"},
		"a fixed share of nothing":              {consume("cores", "0"), configs(fromClass(`,"policy":"fixed-share"`)), "ask for cores of at least 1, or for policy best-effort"},
		"a ceiling below what is guaranteed":    {nil, configs(fromClaim(`,"burst":{"ceiling":29}`)), "burst.ceiling: Invalid value: 29: must not be below the guaranteed cores of 30"},
		"a ceiling of a class that takes none":  {nil, configs(fromClass(`,"policy":"fixed-share"`), fromClaim(`,"burst":{"ceiling":50}`)), "policy fixed-share takes no ceiling, only guaranteed-burst-share and native-burst-share do"},
		"a ceiling above the card":              {nil, configs(fromClaim(`,"burst":{"ceiling":101}`)), "must be 1 to 100, in percent of the card"},
		"an offline share of a card not shared": {func(r *result) { r.ShareID, r.ConsumedCapacity = nil, nil }, configs(fromClass(`,"class":"offline"`)), "the share holds 100 of cores"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := load(t, "one-share")
			r := &claim.Status.Allocation.Devices.Results[0]
			if tc.change != nil {
				tc.change(r)
			}
			claim.Status.Allocation.Devices.Config = tc.configs
			got, err := claims.Decode(claim, node())
			require.Empty(t, got)
			require.ErrorContains(t, err, "claim vision/notebook-gpu-rw62b, request gpu, card "+r.Device+": ")
			require.ErrorContains(t, err, tc.says)
			var refused *claims.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, claims.Of(claim), refused.Claim)
			require.Equal(t, "gpu", refused.Request)
			require.Equal(t, r.Device, refused.Device)
			if r.Device == "gpu-gone" {
				require.ErrorIs(t, err, claims.ErrNoSuchCard, "it may come back")
				require.NotErrorIs(t, err, claims.ErrImpossible)
			} else {
				require.ErrorIs(t, err, claims.ErrImpossible, "trying again does not help")
			}
		})
	}
}

func configs(c ...resourceapi.DeviceAllocationConfiguration) []resourceapi.DeviceAllocationConfiguration {
	return c
}

func raw(parameters []byte) resourceapi.DeviceAllocationConfiguration {
	c := fromClaim("")
	c.Opaque.Parameters.Raw = parameters
	return c
}

func TestAClaimThatIsNotAllocatedIsRefused(t *testing.T) {
	t.Parallel()
	claim := load(t, "one-share")
	claim.Status.Allocation = nil
	got, err := claims.Decode(claim, node())
	require.Empty(t, got)
	require.EqualError(t, err, "claim vision/notebook-gpu-rw62b is not allocated")
}

// A claim is prepared whole or not at all, and everything that is wrong with it
// is said at once.
func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	claim := load(t, "two-configs")
	results := claim.Status.Allocation.Devices.Results
	consume("cores", "130")(&results[0])
	results[1].Device = "gpu-gone"
	results = append(results, load(t, "count-two").Status.Allocation.Devices.Results...)
	claim.Status.Allocation.Devices.Results = results
	got, err := claims.Decode(claim, node())
	require.Empty(t, got)
	require.ErrorContains(t, err, "request serve, card "+first+": cores of 130")
	require.ErrorContains(t, err, "request batch, card gpu-gone: this node has no such card")
	require.ErrorIs(t, err, claims.ErrImpossible, "the card may come back, but that would not help")
	require.NotContains(t, err.Error(), "request pair")
}

// What another driver does with its own results and configurations is no
// business of ours, however odd.
func TestOtherDriversCannotBreakAClaim(t *testing.T) {
	t.Parallel()
	claim := load(t, "two-drivers")
	devices := &claim.Status.Allocation.Devices
	devices.Results[0].AdminAccess = new(true)
	theirs := raw([]byte("\x00"))
	theirs.Opaque.Driver = "rdma.example.com"
	devices.Config = append(devices.Config, theirs, resourceapi.DeviceAllocationConfiguration{Source: "FromSomewhere"})
	got, err := claims.Decode(claim, node())
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, share.GuaranteedBurst, got[0].Policy)
}
