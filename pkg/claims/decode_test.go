// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Cards of the node by their published names.
const (
	first  = "gpu-8f3c2a10-5b7e-4c21-9d0a-000000000000"
	second = "gpu-8f3c2a10-5b7e-4c21-9d0a-000000000001"
	amd    = "card-of-amd"
)

func node() claims.Node {
	cards := map[string]card.Card{
		first:  {UUID: "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000", Vendor: card.VendorNVIDIA, Memory: 24 << 10},
		second: {UUID: "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000001", Vendor: card.VendorNVIDIA, Memory: 24 << 10},
		amd:    {UUID: "amd-1", Vendor: card.VendorAMD, Memory: 192 << 10, WholeOnly: true},
	}
	return claims.Node{
		Driver: "gpu.tranche.dev", Pool: "node1", DefaultPolicy: claims.Always(share.GuaranteedBurst),
		Card: func(device string) (card.Card, bool) { c, ok := cards[device]; return c, ok },
	}
}

// load reads a claim as the API server holds it.
func load(t testing.TB, name string) *resourceapi.ResourceClaim {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	claim := &resourceapi.ResourceClaim{}
	require.NoError(t, yaml.UnmarshalStrict(data, claim))
	return claim
}

// config is one configuration of an allocation, given by the fields of a ShareConfig.
func config(source resourceapi.AllocationConfigSource, fields string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: source, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: "gpu.tranche.dev",
			Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig"` + fields + `}`),
			},
		}},
	}
}

func fromClass(fields string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return config(resourceapi.AllocationConfigSourceClass, fields, requests...)
}

func fromClaim(fields string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return config(resourceapi.AllocationConfigSourceClaim, fields, requests...)
}

type result = resourceapi.DeviceRequestAllocationResult

// consume sets one amount of a result.
func consume(name resourceapi.QualifiedName, quantity string) func(*result) {
	return func(r *result) { r.ConsumedCapacity[name] = resource.MustParse(quantity) }
}

func TestDecodeWhatTheSchedulerAllocates(t *testing.T) {
	t.Parallel()
	cards := map[string]card.UUID{
		first: "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000", second: "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000001", amd: "amd-1",
	}
	// one is a share; its claim is filled in below.
	one := func(request, device, shareID string, l share.Limits, p share.Policy, c share.Class, ceiling card.Percent) share.Share {
		return share.Share{
			ID: share.ID{Request: request, Pool: "node1", Device: device, ShareID: shareID}, Card: cards[device],
			Limits: l, Policy: p, Class: c, BurstCeiling: ceiling,
		}
	}
	whole := func(s share.Share) share.Share { s.Whole = true; return s }
	for name, tc := range map[string]struct {
		file string
		want []share.Share
	}{
		"one share, under the policy of the node": {"one-share", []share.Share{
			one("gpu", first, "aa32bfd8-2531-4f1f-a31d-32da0c9c025c", share.Limits{Cores: 30, Memory: 4096}, share.GuaranteedBurst, share.NoClass, 100),
		}},
		"count 2 is a share of each of two cards": {"count-two", []share.Share{
			one("pair", first, "837c8602-37b1-46f7-8e95-b84f3536e82b", share.Limits{Cores: 25, Memory: 4096}, share.Fixed, share.NoClass, 100),
			one("pair", second, "54c45f6c-de15-437f-9743-c24729e675d8", share.Limits{Cores: 25, Memory: 4096}, share.Fixed, share.NoClass, 100),
		}},
		"two requests on one card, each with its own configuration": {"two-configs", []share.Share{
			one("serve", first, "228ad41a-d371-4d0e-9715-0da00c6c3c15", share.Limits{Cores: 40, Memory: 8192}, share.GuaranteedBurst, share.Online, 80),
			one("batch", first, "f159c8b0-cc3d-468e-8ec4-43aa8b6d31b0", share.Limits{OfflineCores: 20, Memory: 2048}, share.NativeBurst, share.Offline, 100),
		}},
		"an alternative takes the configurations of its parent and its own": {"first-available", []share.Share{
			one("gpu/small", second, "839cf023-4cf2-4a96-87b1-bc17278b3483", share.Limits{Cores: 20, Memory: 2048}, share.GuaranteedBurst, share.Online, 50),
		}},
		"what another driver holds is passed over": {"two-drivers", []share.Share{
			one("gpu", first, "b0415571-7349-40fe-b81d-541efbf18cd9", share.Limits{Cores: 10, Memory: 1024}, share.GuaranteedBurst, share.NoClass, 100),
		}},
		"an extended resource is a whole card": {"extended-resource", []share.Share{
			whole(one("container-0-request-0", first, "7184e61b-bbdc-44bd-b9fc-354addaa9502", share.Limits{Cores: 100, Memory: 24 << 10}, share.GuaranteedBurst, share.NoClass, 100)),
		}},
		"a card that is not shared is whole without a share ID": {"whole-card", []share.Share{
			whole(one("gpu", amd, "", share.Limits{Cores: 100, Memory: 192 << 10}, share.GuaranteedBurst, share.NoClass, 100)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := load(t, tc.file)
			unchanged := claim.DeepCopy()
			for i := range tc.want {
				tc.want[i].Claim = share.Claim{UID: string(claim.UID), Namespace: "vision", Name: claim.Name}
			}
			got, err := claims.Decode(claim, node())
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			require.Equal(t, unchanged, claim, "the claim may be shared with a cache")
			again, err := claims.Decode(claim, node())
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

// The rows change the allocation of one-share.yaml.
func TestDecodeLimits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*result)
		want   share.Limits
		whole  bool
	}{
		"memory without compute":                            {consume("cores", "0"), share.Limits{Memory: 4096}, false},
		"all compute of a card, but not all memory":         {consume("cores", "100"), share.Limits{Cores: 100, Memory: 4096}, false},
		"all memory of a card, but not all compute":         {consume("memory", "24Gi"), share.Limits{Cores: 30, Memory: 24 << 10}, false},
		"the least memory":                                  {consume("memory", "256Mi"), share.Limits{Cores: 30, Memory: 256}, false},
		"memory in another notation":                        {consume("memory", "1073741824"), share.Limits{Cores: 30, Memory: 1024}, false},
		"a fraction of Gi that is a whole number of Mi":     {consume("memory", "1.5Gi"), share.Limits{Cores: 30, Memory: 1536}, false},
		"one Mi below the card":                             {consume("memory", "24575Mi"), share.Limits{Cores: 30, Memory: 24575}, false},
		"cores in another notation":                         {consume("cores", "30000m"), share.Limits{Cores: 30, Memory: 4096}, false},
		"a card that was published before offlineCores was": {func(r *result) { delete(r.ConsumedCapacity, "offlineCores") }, share.Limits{Cores: 30, Memory: 4096}, false},
		"all of a card": {func(r *result) {
			consume("cores", "100")(r)
			consume("memory", "24Gi")(r)
		}, share.Limits{Cores: 100, Memory: 24 << 10}, true},
		"no share ID and no amounts, as Kubernetes without shares allocates": {func(r *result) {
			r.ShareID, r.ConsumedCapacity = nil, nil
		}, share.Limits{Cores: 100, Memory: 24 << 10}, true},
		"adminAccess that is off":               {func(r *result) { r.AdminAccess = new(false) }, share.Limits{Cores: 30, Memory: 4096}, false},
		"an amount that a later release offers": {consume("encoders", "1"), share.Limits{Cores: 30, Memory: 4096}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := load(t, "one-share")
			tc.change(&claim.Status.Allocation.Devices.Results[0])
			got, err := claims.Decode(claim, node())
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, tc.want, got[0].Limits)
			require.Equal(t, tc.whole, got[0].Whole)
		})
	}
}

func TestDecodeConfigs(t *testing.T) {
	t.Parallel()
	offlineCores := func(r *result) {
		consume("cores", "0")(r)
		consume("offlineCores", "20")(r)
	}
	type configs = []resourceapi.DeviceAllocationConfiguration
	for name, tc := range map[string]struct {
		change  func(*result)
		configs configs
		policy  share.Policy
		class   share.Class
		ceiling card.Percent
	}{
		"none": {nil, nil, share.GuaranteedBurst, share.NoClass, 100},
		"an empty one changes nothing": {
			nil, configs{fromClass(""), fromClaim("")}, share.GuaranteedBurst, share.NoClass, 100,
		},
		"the class decides where the claim says nothing": {
			nil, configs{fromClass(`,"policy":"native-burst-share","class":"online"`, "gpu"), fromClaim("")}, share.NativeBurst, share.Online, 100,
		},
		"the claim wins over the class": {
			nil, configs{fromClass(`,"policy":"fixed-share"`, "gpu"), fromClaim(`,"policy":"native-burst-share"`, "gpu")}, share.NativeBurst, share.NoClass, 100,
		},
		"they are merged field by field": {
			nil, configs{fromClass(`,"policy":"native-burst-share","burst":{"ceiling":70}`), fromClaim(`,"class":"online"`)}, share.NativeBurst, share.Online, 70,
		},
		"of two of the claim the later wins": {
			nil, configs{fromClaim(`,"burst":{"ceiling":70}`), fromClaim(`,"burst":{"ceiling":60}`)}, share.GuaranteedBurst, share.NoClass, 60,
		},
		"one for another request does not apply": {
			nil, configs{fromClaim(`,"class":"online"`, "other", "gpu/sub")}, share.GuaranteedBurst, share.NoClass, 100,
		},
		"one for several requests applies to each": {
			nil, configs{fromClaim(`,"class":"online"`, "other", "gpu")}, share.GuaranteedBurst, share.Online, 100,
		},
		"best effort without compute": {
			consume("cores", "0"), configs{fromClass(`,"policy":"best-effort"`)}, share.BestEffort, share.NoClass, 100,
		},
		"offline by class": {
			offlineCores, configs{fromClass(`,"class":"offline"`)}, share.GuaranteedBurst, share.Offline, 100,
		},
		"offline because it holds offline compute": {
			offlineCores, configs{fromClass(`,"policy":"fixed-share"`)}, share.Fixed, share.Offline, 100,
		},
		"offline without compute": {
			consume("cores", "0"), configs{fromClass(`,"class":"offline"`)}, share.GuaranteedBurst, share.Offline, 100,
		},
		"a ceiling of just what is guaranteed": {
			nil, configs{fromClaim(`,"burst":{"ceiling":30}`)}, share.GuaranteedBurst, share.NoClass, 30,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := load(t, "one-share")
			if tc.change != nil {
				tc.change(&claim.Status.Allocation.Devices.Results[0])
			}
			claim.Status.Allocation.Devices.Config = tc.configs
			got, err := claims.Decode(claim, node())
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, tc.policy, got[0].Policy)
			require.Equal(t, tc.class, got[0].Class)
			require.Equal(t, tc.ceiling, got[0].BurstCeiling)
		})
	}
}

func TestTheNodesPolicyIsOnlyADefault(t *testing.T) {
	t.Parallel()
	for _, policy := range share.Policies() {
		n := node()
		n.DefaultPolicy = claims.Always(policy)
		got, err := claims.Decode(load(t, "one-share"), n)
		require.NoError(t, err)
		require.Equal(t, policy, got[0].Policy)
		got, err = claims.Decode(load(t, "count-two"), n)
		require.NoError(t, err)
		require.Equal(t, share.Fixed, got[0].Policy)
	}
}

// Whose policy is in neither the claim nor its class looks for it there.
func TestAnErrorSaysWhereThePolicyComesFrom(t *testing.T) {
	t.Parallel()
	const said = " (fixed-share is the node's default: the node's label tranche.dev/default-policy)"
	n := node()
	n.DefaultPolicy = func(share.ID) (claims.Default, error) {
		return claims.Default{Policy: share.Fixed, Why: "the node's label tranche.dev/default-policy"}, nil
	}
	for name, row := range map[string]struct {
		cores   string
		configs []resourceapi.DeviceAllocationConfiguration
		says    string
		unsaid  bool
	}{
		"nothing is asked for":          {"0", nil, "or for policy best-effort" + said, false},
		"a ceiling":                     {"30", configs(fromClaim(`,"burst":{"ceiling":50}`)), "native-burst-share do" + said, false},
		"a ceiling that nobody takes":   {"30", configs(fromClaim(`,"burst":{"ceiling":101}`)), "must be 1 to 100", true},
		"a class that does not fit":     {"30", configs(fromClaim(`,"class":"offline"`)), "offlineCores: N, policy: Invalid value", false},
		"the claim names that policy":   {"0", configs(fromClaim(`,"policy":"fixed-share"`)), "or for policy best-effort", true},
		"the class names that policy":   {"0", configs(fromClass(`,"policy":"fixed-share"`)), "or for policy best-effort", true},
		"the claim names another wrong": {"30", configs(fromClaim(`,"policy":"best-effort","burst":{"ceiling":50}`)), "policy best-effort takes no ceiling", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := load(t, "one-share")
			consume("cores", row.cores)(&claim.Status.Allocation.Devices.Results[0])
			claim.Status.Allocation.Devices.Config = row.configs
			_, err := claims.Decode(claim, n)
			require.ErrorContains(t, err, row.says)
			if row.unsaid {
				require.NotContains(t, err.Error(), "the node's default")
			}
		})
	}
}

// A node that does not know its own default yet may know it soon: only claims that
// leave their policy to it have to wait.
func TestADefaultThatIsNotKnownYetIsNoFaultOfTheClaim(t *testing.T) {
	t.Parallel()
	n := node()
	n.DefaultPolicy = func(share.ID) (claims.Default, error) { return claims.Default{}, claims.ErrDefaultUnknown }
	_, err := claims.Decode(load(t, "one-share"), n)
	require.ErrorIs(t, err, claims.ErrDefaultUnknown)
	require.NotErrorIs(t, err, claims.ErrImpossible)
	require.ErrorContains(t, err, "the claim names no policy, and the node's default is not known yet")
	got, err := claims.Decode(load(t, "count-two"), n)
	require.NoError(t, err)
	require.Equal(t, share.Fixed, got[0].Policy)
}

// Without DRAConsumableCapacity done right, count 2 was the same card twice.
// Both are shares, told apart by their share IDs.
func TestTheSameCardTwiceIsTwoShares(t *testing.T) {
	t.Parallel()
	claim := load(t, "count-two")
	claim.Status.Allocation.Devices.Results[1].Device = first
	got, err := claims.Decode(claim, node())
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, got[0].Card, got[1].Card)
	require.NotEqual(t, got[0].Key(), got[1].Key())
}

func TestAClaimWithNothingOfOursHasNoShares(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*resourceapi.ResourceClaim){
		"nothing is allocated by us": func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Results = c.Status.Allocation.Devices.Results[:1]
		},
		"no results at all": func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results = nil },
		"a driver whose name ours begins with": func(c *resourceapi.ResourceClaim) {
			for i := range c.Status.Allocation.Devices.Results {
				c.Status.Allocation.Devices.Results[i].Driver = "gpu.tranche.dev.example"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := load(t, "two-drivers")
			change(claim)
			got, err := claims.Decode(claim, node())
			require.NoError(t, err)
			require.Empty(t, got)
		})
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	claim := load(t, "one-share")
	claim.UID = types.UID("u")
	require.Equal(t, share.Claim{UID: "u", Namespace: "vision", Name: "notebook-gpu-rw62b"}, claims.Of(claim))
}
