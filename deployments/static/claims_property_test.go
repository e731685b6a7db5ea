// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/deviceclasses"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

const adminsClass = "a100.tranche.dev"

// The policy in CEL and the node in Go must not disagree: what is admitted is
// not rounded by the scheduler and not refused by the node, and what is refused
// would have been. The rules are told here a second time, in Go.
func TestClaimsPolicyAgreesWithTheNode(t *testing.T) {
	t.Parallel()
	claims := policy(t, "claims.gpu.tranche.dev")
	classes := map[string]*v1alpha1.ShareConfig{}
	all, err := deviceclasses.All()
	require.NoError(t, err)
	for _, c := range all {
		classes[c.Name] = v1alpha1.NewShareConfig()
		for _, config := range c.Spec.Config {
			classes[c.Name], err = v1alpha1.Decode(config.Opaque.Parameters.Raw)
			require.NoError(t, err)
		}
	}
	// A class of the admin's own, of which neither policy nor node knows the configs here.
	classes[adminsClass] = v1alpha1.NewShareConfig()
	names := slices.Concat(deviceclasses.Names(), []string{adminsClass})
	// Good values come often, so that a claim has one fault rather than five.
	percents := []string{"", "101", "130", "-1", "500m", "100.0", "9Ei", "1e30"}
	memories := []string{"", "255Mi", "257Mi", "4G", "0", "-1Gi", "1e12", "1048576k", "1Pi", "1023Ti", "1000T", "1125899906842623", "16Ei", "268435456001m"}
	for range 8 {
		percents = append(percents, "0", "0", "1", "30", "100", "1000m")
		memories = append(memories, "4Gi", "256Mi", "268435456", "1073741824Ki", "1073741823Mi")
	}
	offlinePercents := slices.Concat(percents, slices.Repeat([]string{""}, len(percents)))
	optional := func(t *rapid.T, key string, values []string) string {
		if v := rapid.SampledFrom(values).Draw(t, key); v != "" {
			return fmt.Sprintf("%s: %q", key, v)
		}
		return ""
	}
	rapid.Check(t, func(rt *rapid.T) {
		class := rapid.SampledFrom(names).Draw(rt, "class")
		capacity := ""
		if class != deviceclasses.Card && class != adminsClass || rapid.IntRange(0, 3).Draw(rt, "part") == 0 {
			capacity = fields(optional(rt, "cores", percents), optional(rt, "offlineCores", offlinePercents), optional(rt, "memory", memories))
		}
		devices := one(class, capacity)
		config := v1alpha1.NewShareConfig()
		if own := fields(optional(rt, "policy", []string{"", "", "best-effort", "fixed-share", "guaranteed-burst-share", "native-burst-share", "fixed"}),
			optional(rt, "class", []string{"", "", "", "none", "online", "offline", "Online"}),
			rapid.SampledFrom([]string{"", "", "burst: {ceiling: 30}", "burst: {ceiling: 0}", "burst: {ceiling: 100}"}).Draw(rt, "burst")); own != "" {
			devices = configured(devices, own)
			config = decodeConfig(t, devices)
		}
		denials, err := claims.Review(t.Context(), create(claim(t, devices), "resourceclaims"))
		require.NoError(t, err)
		reason := refuse(t, class, capacity, classes[class], config)
		require.Equal(t, reason != "", len(denials) > 0, "%s\npolicy: %v\nnode: %s", devices, denials, reason)
	})
}

func fields(parts ...string) string {
	var set []string
	for _, p := range parts {
		if p != "" {
			set = append(set, p)
		}
	}
	return strings.Join(set, ", ")
}

// refuse is why the scheduler or the node could not give what is asked for,
// empty if they can.
func refuse(t *testing.T, class, capacity string, fromClass, fromClaim *v1alpha1.ShareConfig) string {
	t.Helper()
	limits, reason := allocated(class, requested(t, one(class, capacity)))
	if reason != "" {
		return reason
	}
	if errs := fromClaim.Validate(nil); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	merged := v1alpha1.Merge(fromClass, fromClaim)
	if class == adminsClass && merged.Class == nil && limits.OfflineCores > 0 {
		// Nobody knows what the class says: the node goes by the ledger.
		offline := share.Offline
		merged.Class = &offline
	}
	// The node's default policy is not known here: refuse only what every node
	// refuses, but a whole card as a node that was told nothing would.
	defaults := share.Policies()
	if class == deviceclasses.Card {
		defaults = []share.Policy{v1alpha1.DefaultPolicy}
	}
	for _, nodeDefault := range defaults {
		config := merged.DeepCopy()
		v1alpha1.SetDefaults(config, nodeDefault)
		errs := config.ValidateMerged(limits, nil)
		if len(errs) == 0 {
			return ""
		}
		reason = errs.ToAggregate().Error()
	}
	return reason
}

// allocated is what the scheduler grants for the capacity asked for, or why it
// would not grant just that.
func allocated(class string, asked map[string]resource.Quantity) (limits share.Limits, reason string) {
	if len(asked) == 0 && (class == deviceclasses.Card || class == adminsClass) {
		return share.Limits{Cores: card.WholeCompute, Memory: 24 << 10}, ""
	}
	if class == deviceclasses.Card {
		return limits, "a whole card has no parts"
	}
	needed := []string{"cores", "memory"}
	if class == deviceclasses.Offline {
		needed = append(needed, "offlineCores")
	}
	for _, k := range needed {
		if _, ok := asked[k]; !ok {
			return limits, k + " is missing"
		}
	}
	for k, into := range map[string]*card.Percent{"cores": &limits.Cores, "offlineCores": &limits.OfflineCores} {
		q, ok := asked[k]
		if !ok {
			continue
		}
		n, exact := whole64(q)
		if !exact || n < 0 || n > 100 {
			return limits, k + " would be rounded, clamped or wait"
		}
		*into = card.Percent(n)
	}
	n, exact := whole64(asked["memory"])
	if !exact || n < 256<<20 || n%(1<<20) != 0 || n >= 1<<50 {
		return limits, "memory would be rounded, clamped or wait"
	}
	limits.Memory = card.MiB(n >> 20)
	return limits, ""
}

// whole64 is the amount if it is an integer, whatever form the quantity has.
func whole64(q resource.Quantity) (int64, bool) {
	n := q.Value()
	return n, q.CmpInt64(n) == 0
}
