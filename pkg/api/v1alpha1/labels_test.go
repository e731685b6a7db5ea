// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

func TestPolicyOfLabel(t *testing.T) {
	t.Parallel()
	for _, p := range share.Policies() {
		got, err := v1alpha1.PolicyOfLabel(string(p))
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	for _, wrong := range []string{"", "fixed", "Fixed-Share", "online"} {
		_, err := v1alpha1.PolicyOfLabel(wrong)
		require.EqualError(t, err, `metadata.labels[tranche.dev/default-policy]: Unsupported value: "`+wrong+
			`": supported values: "best-effort", "fixed-share", "guaranteed-burst-share", "native-burst-share"`)
	}
}

func TestCeilingOfLabel(t *testing.T) {
	t.Parallel()
	held := func(p share.Policy, class share.Class, limits share.Limits) share.Share {
		return share.Share{ID: share.ID{Request: "gpu"}, Card: "GPU-a", Policy: p, Class: class, Limits: limits}
	}
	burst := held(share.GuaranteedBurst, share.NoClass, share.Limits{Cores: 30})
	offline := held(share.GuaranteedBurst, share.Offline, share.Limits{OfflineCores: 40})
	weighted := held(share.NativeBurst, share.Online, share.Limits{Cores: 50})
	fixed := held(share.Fixed, share.NoClass, share.Limits{Cores: 80})
	idle := held(share.BestEffort, share.NoClass, share.Limits{})
	const amount = "must be a whole number of 1 to 100, in percent of the card"
	for name, tc := range map[string]struct {
		value  string
		shares []share.Share
		want   card.Percent
		says   string
	}{
		"more than is guaranteed":                      {"60", []share.Share{burst}, 60, ""},
		"exactly what is guaranteed":                   {"30", []share.Share{burst}, 30, ""},
		"the whole card":                               {"100", []share.Share{burst}, 100, ""},
		"a weight guarantees nothing":                  {"1", []share.Share{weighted}, 1, ""},
		"a share that takes none is passed over":       {"40", []share.Share{fixed, burst, idle}, 40, ""},
		"less than is guaranteed":                      {"29", []share.Share{burst}, 0, "request gpu, card GPU-a: must not be below the guaranteed cores of 30"},
		"less than is guaranteed of offline compute":   {"39", []share.Share{offline}, 0, "must not be below the guaranteed offlineCores of 40"},
		"too little for one share changes none":        {"35", []share.Share{weighted, burst, offline}, 0, "must not be below the guaranteed offlineCores of 40"},
		"only shares that take no ceiling":             {"50", []share.Share{fixed, idle}, 0, "no share of the claim takes a ceiling, only those under guaranteed-burst-share and native-burst-share do"},
		"nothing":                                      {"0", []share.Share{weighted}, 0, amount},
		"more than a card":                             {"101", []share.Share{weighted}, 0, amount},
		"far more than a card":                         {"99999999999999999999", []share.Share{weighted}, 0, amount},
		"less than nothing":                            {"-5", []share.Share{weighted}, 0, amount},
		"a part of a percent":                          {"50.5", []share.Share{weighted}, 0, amount},
		"a label that is there and empty":              {"", []share.Share{weighted}, 0, amount},
		"a word":                                       {"half", []share.Share{weighted}, 0, amount},
		"an amount as programmers would write it":      {"0x10", []share.Share{weighted}, 0, amount},
		"a number that would wrap around to a percent": {"266", []share.Share{weighted}, 0, amount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := v1alpha1.CeilingOfLabel(tc.value, tc.shares)
			require.Equal(t, tc.want, got)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, `metadata.labels[tranche.dev/burst-ceiling]: Invalid value: "`+tc.value+`": `)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

// Whatever the label says, what comes of it is a ceiling that each share can have.
func FuzzCeilingOfLabel(f *testing.F) {
	f.Add("60", 30, 0)
	f.Add("+60", 0, 1)
	f.Add("1_0", 100, 2)
	f.Fuzz(func(t *testing.T, value string, cores, policy int) {
		policies := share.Policies()
		s := share.Share{
			Policy: policies[int(uint(policy)%uint(len(policies)))], Class: share.NoClass,
			Limits: share.Limits{Cores: card.Percent(uint(cores) % 101)},
		}
		ceiling, err := v1alpha1.CeilingOfLabel(value, []share.Share{s})
		if err != nil {
			require.Zero(t, ceiling)
			return
		}
		require.True(t, s.Policy.Bursts())
		require.GreaterOrEqual(t, ceiling, card.Percent(1))
		require.LessOrEqual(t, ceiling, card.WholeCompute)
		if s.Policy == share.GuaranteedBurst {
			require.GreaterOrEqual(t, ceiling, s.Limits.Cores)
		}
		n, err := strconv.Atoi(value)
		require.NoError(t, err)
		require.EqualValues(t, ceiling, n)
	})
}
