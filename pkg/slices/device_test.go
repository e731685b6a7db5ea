// SPDX-License-Identifier: Apache-2.0

package slices_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/slices"
)

func deviceOf(t require.TestingT, c card.Card) resourceapi.Device {
	got, _ := slices.Build([]card.Card{c}, shared())
	requireAccepted(t, got)
	return onlyPool(t, got).Slices[0].Devices[0]
}

func TestVersionsAreStrictlySemantic(t *testing.T) {
	t.Parallel()
	for printed, want := range map[string]string{
		"580.65.06":      "580.65.6",
		"13.0":           "13.0.0",
		"8.6":            "8.6.0",
		"12":             "12.0.0",
		"550.54.15-grid": "550.54.15",
		"535.129.03.01":  "535.129.3",
		"v1.2.3":         "1.2.3",
		" 570.00.000\n":  "570.0.0",
		"":               "0.0.0",
		"unknown":        "0.0.0",
		"N/A":            "0.0.0",
		"-1.2":           "0.0.0",
		"99999999999.1":  "0.0.0",
	} {
		c := a100(0)
		c.DriverVersion = printed
		require.Equal(t, want, *deviceOf(t, c).Attributes[slices.AttributeDriverVersion].VersionValue, "printed as %q", printed)
	}
}

func FuzzVersion(f *testing.F) {
	for _, s := range []string{"580.65.06", "13.0", "", "1.2.3.4", "007", "1..2", "9999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, printed string) {
		c := a100(0)
		c.CUDAVersion = printed
		v := *deviceOf(t, c).Attributes[slices.AttributeCUDAVersion].VersionValue
		parsed, err := version.ParseSemantic(v)
		require.NoError(t, err)
		require.Equal(t, v, parsed.String())
	})
}

func TestTextAttributes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ told, want string }{
		"a plain name stays":                    {"Tesla T4", "Tesla T4"},
		"nothing told is said":                  {"", "unknown"},
		"blanks are nothing":                    {"  \t", "unknown"},
		"64 bytes are kept":                     {strings.Repeat("x", 64), strings.Repeat("x", 64)},
		"the 65th byte is cut":                  {strings.Repeat("x", 65), strings.Repeat("x", 64)},
		"a character is never cut in two":       {strings.Repeat("x", 63) + "é", strings.Repeat("x", 63)},
		"bytes that are no characters are lost": {"Tesla\xff T4", "Tesla T4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := a100(0)
			c.ProductName = tc.told
			require.Equal(t, tc.want, *deviceOf(t, c).Attributes[slices.AttributeProductName].StringValue)
		})
	}
}

func TestLongUUIDsStayDifferent(t *testing.T) {
	t.Parallel()
	a, b := a100(0), a100(1)
	a.UUID = card.UUID(strings.Repeat("x", 70) + "a")
	b.UUID = card.UUID(strings.Repeat("x", 70) + "b")
	got, _ := slices.Build([]card.Card{a, b}, shared())
	requireAccepted(t, got)
	d := onlyPool(t, got).Slices[0].Devices
	require.NotEqual(t, *d[0].Attributes[slices.AttributeUUID].StringValue, *d[1].Attributes[slices.AttributeUUID].StringValue)
}

func TestStandardPCIAddress(t *testing.T) {
	t.Parallel()
	for told, want := range map[string]string{
		"00000000:1b:00.0": "0000:1b:00.0",
		"00000000:1B:00.0": "0000:1b:00.0",
		"0000:1b:00.0":     "0000:1b:00.0",
		"0000ab12:00:1f.3": "ab12:00:1f.3",
		"00010000:00:00.0": "unknown",
		"":                 "unknown",
		"nonsense":         "unknown",
	} {
		c := a100(0)
		c.PCIBusID = told
		attributes := deviceOf(t, c).Attributes
		require.Equal(t, want, *attributes[deviceattribute.StandardDeviceAttributePCIBusID].StringValue, "told %q", told)
		if want != "unknown" {
			standard, err := deviceattribute.GetPCIBusIDAttribute(want)
			require.NoError(t, err)
			require.Equal(t, standard.Value, attributes[standard.Name])
		}
	}
}

// A selector on an attribute that a card lacks fails the pod, even where another
// card would match. So every selector must work on every kind of card.
func TestSelectorsWorkOnEveryCard(t *testing.T) {
	t.Parallel()
	mine := func(name string) string { return fmt.Sprintf(`device.attributes[%q].%s`, slices.DriverName, name) }
	standard := func(name string) string { return fmt.Sprintf(`device.attributes["resource.kubernetes.io"].%s`, name) }
	full, bare := a100(1), card.Card{UUID: "GPU-bare", Minor: card.Unknown, NUMANode: card.Unknown}
	amd := card.Card{UUID: "amd-1", Vendor: card.VendorAMD, Memory: 1024, WholeOnly: true}
	for expression, matches := range map[string][3]bool{
		mine("uuid") + ` == "GPU-bare"`:                                            {false, true, false},
		mine("index") + ` == 1`:                                                    {true, false, false},
		mine("minor") + ` >= 0`:                                                    {true, false, true},
		mine("productName") + `.startsWith("NVIDIA A100")`:                         {true, false, false},
		mine("architecture") + ` in ["Ampere", "Hopper"]`:                          {true, false, false},
		mine("computeCapability") + `.isGreaterThan(semver("7.5.0"))`:              {true, false, false},
		mine("driverVersion") + `.isGreaterThan(semver("570.0.0"))`:                {true, false, false},
		mine("cudaVersion") + `.isLessThan(semver("12.0.0"))`:                      {false, true, true},
		mine("pciBusID") + ` != "unknown"`:                                         {true, false, false},
		mine("numaNode") + ` == 1`:                                                 {true, false, false},
		mine("vendor") + ` == "amd"`:                                               {false, false, true},
		standard("pcieRoot") + ` == "pci0000:15"`:                                  {true, false, false},
		standard("pciBusID") + ` == "0000:1c:00.0"`:                                {true, false, false},
		`device.allowMultipleAllocations`:                                          {true, false, false},
		`device.driver == "gpu.tranche.dev"`:                                       {true, true, true},
		`device.capacity["gpu.tranche.dev"].cores.compareTo(quantity("100")) == 0`: {true, true, true},
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{})
			require.Nil(t, compiled.Error)
			for i, c := range []card.Card{full, bare, amd} {
				d := deviceOf(t, c)
				got, _, err := compiled.DeviceMatches(t.Context(), cel.Device{
					Driver: slices.DriverName, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
				})
				require.NoError(t, err, "card %s", c.UUID)
				require.Equal(t, matches[i], got, "card %s", c.UUID)
			}
		})
	}
}

func TestTaints(t *testing.T) {
	t.Parallel()
	const noSchedule, noExecute = resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute
	long := strings.Repeat("w", 70)
	for name, tc := range map[string]struct {
		faults []card.Fault
		want   []resourceapi.DeviceTaint
	}{
		"a healthy card has none": {nil, nil},
		"a fault keeps new pods away": {
			[]card.Fault{{Kind: "EccError", Message: "double-bit ECC error"}},
			[]resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/EccError", Value: "double-bit-ECC-error", Effect: noSchedule}},
		},
		"a fault that evicts stops pods too": {
			[]card.Fault{{Kind: "XidError", Message: "Xid 79: off the bus!", Evict: true}},
			[]resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/XidError", Value: "Xid-79-off-the-bus", Effect: noExecute}},
		},
		"of two faults of a kind the worse is shown": {
			[]card.Fault{{Kind: "XidError", Message: "a"}, {Kind: "XidError", Message: "b", Evict: true}, {Kind: "XidError", Message: "c"}},
			[]resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/XidError", Value: "b", Effect: noExecute}},
		},
		"kinds are sorted": {
			[]card.Fault{{Kind: "B"}, {Kind: "A", Evict: true}, {Kind: "C", Evict: true}},
			[]resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/A", Effect: noExecute}, {Key: "gpu.tranche.dev/B", Effect: noSchedule}, {Key: "gpu.tranche.dev/C", Effect: noExecute}},
		},
		"what a label cannot hold is replaced": {
			[]card.Fault{{Kind: "Xid error/№79", Message: "„…“"}, {Kind: "", Message: long}},
			[]resourceapi.DeviceTaint{
				{Key: "gpu.tranche.dev/Fault", Value: long[:63], Effect: noSchedule},
				{Key: "gpu.tranche.dev/Xid-error-79", Effect: noSchedule},
			},
		},
		"a label that is cut ends in a letter": {
			[]card.Fault{{Kind: "Cut", Message: long[:61] + ": more"}},
			[]resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/Cut", Value: long[:61] + "-m", Effect: noSchedule}},
		},
		"a label that is cut at a blank ends before it": {
			[]card.Fault{{Kind: "Cut", Message: long[:62] + " more"}},
			[]resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/Cut", Value: long[:62], Effect: noSchedule}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := a100(0)
			c.Faults = tc.faults
			require.Equal(t, tc.want, deviceOf(t, c).Taints)
		})
	}
}

func TestOnlySixteenTaintsFit(t *testing.T) {
	t.Parallel()
	c := a100(0)
	for i := range 20 {
		c.Faults = append(c.Faults, card.Fault{Kind: fmt.Sprintf("Kind%02d", i), Evict: i >= 18})
	}
	got, notes := slices.Build([]card.Card{c}, shared())
	requireAccepted(t, got)
	taints := onlyPool(t, got).Slices[0].Devices[0].Taints
	require.Len(t, taints, 16)
	require.Equal(t, "gpu.tranche.dev/Kind19", taints[15].Key, "those that evict are kept")
	require.Equal(t, "gpu.tranche.dev/Kind13", taints[13].Key)
	require.Len(t, notes, 1)
	require.Contains(t, notes[0].String(), "4 of its faults are not published")
}
