// SPDX-License-Identifier: Apache-2.0

package deviceclasses_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dra/tranche/deviceclasses"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/share"
)

const driver = "gpu.tranche.dev"

func all(t *testing.T) map[string]*resourceapi.DeviceClass {
	t.Helper()
	classes, err := deviceclasses.All()
	require.NoError(t, err)
	byName := map[string]*resourceapi.DeviceClass{}
	for _, c := range classes {
		require.NotContains(t, byName, c.Name)
		byName[c.Name] = c
	}
	return byName
}

func TestEveryClassOfTheDesignIsThere(t *testing.T) {
	t.Parallel()
	var names []string
	for name := range all(t) {
		names = append(names, name)
	}
	require.ElementsMatch(t, deviceclasses.Names(), names)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, name := range names {
		require.Contains(t, string(readme), "| `"+name+"` |", "the README says when to take it")
	}
}

func TestConfigsSayWhatTheNamePromises(t *testing.T) {
	t.Parallel()
	const none = ""
	want := map[string]struct {
		policy share.Policy
		class  share.Class
	}{
		deviceclasses.Card:       {none, none},
		deviceclasses.Share:      {none, none},
		deviceclasses.Fixed:      {share.Fixed, none},
		deviceclasses.Burst:      {share.GuaranteedBurst, none},
		deviceclasses.Weighted:   {share.NativeBurst, none},
		deviceclasses.BestEffort: {share.BestEffort, none},
		deviceclasses.Online:     {none, share.Online},
		deviceclasses.Offline:    {none, share.Offline},
	}
	for name, class := range all(t) {
		merged := v1alpha1.NewShareConfig()
		for _, c := range class.Spec.Config {
			require.Equal(t, driver, c.Opaque.Driver)
			config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
			require.NoError(t, err, name)
			require.Empty(t, config.Validate(nil), name)
			merged = v1alpha1.Merge(merged, config)
		}
		expected := v1alpha1.NewShareConfig()
		if w := want[name]; w.policy != none {
			expected.Policy = &w.policy
		} else if w.class != none {
			expected.Class = &w.class
		}
		require.Equal(t, expected, merged, name)
	}
}

func TestOnlyWholeCardsAreAnExtendedResource(t *testing.T) {
	t.Parallel()
	for name, class := range all(t) {
		if name == deviceclasses.Card {
			require.NotNil(t, class.Spec.ExtendedResourceName)
			require.Equal(t, "tranche.dev/gpu", *class.Spec.ExtendedResourceName)
			continue
		}
		require.Nil(t, class.Spec.ExtendedResourceName, name)
	}
}

// The selectors are compiled and run as the API server and the scheduler do.
func TestSelectors(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	for name, class := range all(t) {
		for card, tc := range map[string]struct {
			device       cel.Device
			whole, share bool
		}{
			"a card that can be shared":          {cel.Device{Driver: driver, AllowMultipleAllocations: &yes}, true, true},
			"a card that is published whole":     {cel.Device{Driver: driver}, true, false},
			"a card that says so":                {cel.Device{Driver: driver, AllowMultipleAllocations: &no}, true, false},
			"another driver's device":            {cel.Device{Driver: "gpu.example.com", AllowMultipleAllocations: &yes}, false, false},
			"a driver whose name ends like ours": {cel.Device{Driver: "x." + driver, AllowMultipleAllocations: &yes}, false, false},
		} {
			t.Run(strings.TrimSuffix(name, ".tranche.dev")+" and "+card, func(t *testing.T) {
				t.Parallel()
				matches := true
				for _, s := range class.Spec.Selectors {
					program := compiler.CompileCELExpression(s.CEL.Expression, cel.Options{EnvType: new(environment.NewExpressions)})
					require.Nil(t, program.Error)
					one, _, err := program.DeviceMatches(t.Context(), tc.device)
					require.NoError(t, err)
					matches = matches && one
				}
				want := tc.share
				if name == deviceclasses.Card {
					want = tc.whole
				}
				require.Equal(t, want, matches)
			})
		}
	}
}
