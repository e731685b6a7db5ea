// SPDX-License-Identifier: Apache-2.0

package prepare_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// part is a share of the first card, with the fields of its ShareConfig.
type part struct {
	cores, offline int64
	memory, config string
}

func fixedShare(cores int64) part { return part{cores, 0, "1Gi", `"policy":"fixed-share"`} }
func guaranteed(cores int64) part { return part{cores, 0, "1Gi", `"policy":"guaranteed-burst-share"`} }
func weighted(cores int64) part   { return part{cores, 0, "1Gi", `"policy":"native-burst-share"`} }
func bestEffort() part            { return part{0, 0, "1Gi", `"policy":"best-effort"`} }
func online(cores int64) part     { return part{cores, 0, "1Gi", `"class":"online"`} }
func offline(cores int64) part    { return part{0, cores, "1Gi", `"class":"offline"`} }
func offlineFixed(cores int64) part {
	return part{0, cores, "1Gi", `"class":"offline","policy":"fixed-share"`}
}

func wholeCard() part                 { return part{100, 0, "24Gi", `"policy":"guaranteed-burst-share"`} }
func with(p part, config string) part { p.config += "," + config; return p }

// claimOf holds those shares, each under a request of its own.
func claimOf(name string, parts ...part) *resourceapi.ResourceClaim {
	var results []fixture.Result
	for i, p := range parts {
		results = append(results, fixture.Result{Request: fmt.Sprintf("r%d", i), Cores: p.cores, OfflineCores: p.offline, Memory: p.memory})
	}
	claim := fixture.Claim(name, results...)
	for i, p := range parts {
		configured(claim, p.config, fmt.Sprintf("r%d", i))
	}
	return claim
}

// Policies and classes may meet on a card as they like, as long as no ledger of it is
// promised twice: the scheduler of leases keeps whatever adds up. The rows with a
// text are refused.
func TestWhatMayShareACard(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		held []part // each by a claim of its own
		want []part // by one claim
		says string
	}{
		"policies of all kinds, up to the whole card":           {[]part{fixedShare(30), guaranteed(40), weighted(20), bestEffort()}, []part{guaranteed(10)}, ""},
		"best effort beside a card that is promised whole":      {[]part{fixedShare(100)}, []part{bestEffort(), guaranteed(0), weighted(0)}, ""},
		"online up to the card, and offline up to it once more": {[]part{online(60), online(40), offline(70)}, []part{offlineFixed(30)}, ""},
		"a ceiling that others could not grant all the time":    {[]part{fixedShare(50)}, []part{with(guaranteed(50), `"burst":{"ceiling":90}`)}, ""},
		"a weight with a ceiling below it":                      {nil, []part{with(weighted(50), `"burst":{"ceiling":10}`)}, ""},
		"two shares of one card in one claim":                   {nil, []part{guaranteed(50), fixedShare(50)}, ""},
		"online and offline in one claim":                       {nil, []part{online(100), offline(100)}, ""},

		"fixed and guaranteed compute above the card": {
			[]part{fixedShare(60)},
			[]part{guaranteed(41)},
			"has 100 % of cores, 60 % are held by team/held-0 (uid ",
		},
		"weights take their room as well": {[]part{weighted(60)}, []part{fixedShare(41)}, "100 % of cores, 60 % are held by team/held-0"},
		"classes none and online have one ledger": {
			[]part{online(60)}, []part{guaranteed(41)}, "100 % of cores, 60 % are held by team/held-0",
		},
		"more than the card within one claim":         {nil, []part{guaranteed(60), fixedShare(41)}, "these are shares of the same claim, which cannot be on one card: delete the pod and its claim to have it placed again"},
		"offline compute above the card":              {[]part{offline(60)}, []part{offlineFixed(41)}, "100 % of offlineCores, 60 % are held by team/held-0"},
		"beside a share of a card that is held whole": {[]part{wholeCard()}, []part{bestEffort()}, "1 are held by team/held-0"},
		"a whole card that others have a part of":     {[]part{offline(1)}, []part{wholeCard()}, "1 are held by team/held-0"},

		"class offline with cores":          {nil, []part{with(fixedShare(30), `"class":"offline"`)}, "request r0, card gpu-"},
		"class online with offlineCores":    {nil, []part{{0, 30, "1Gi", `"class":"online"`}}, "the share holds 30 of offlineCores: only class offline takes them, others ask for cores"},
		"both ledgers at once":              {nil, []part{{10, 10, "1Gi", `"class":"offline"`}}, "the share holds 10 of cores: an offline share asks for cores: 0 and offlineCores: N"},
		"a fixed share of nothing":          {nil, []part{fixedShare(0)}, "at most 0 % of the compute would never run anything: ask for cores of at least 1, or for policy best-effort"},
		"an offline fixed share of nothing": {nil, []part{offlineFixed(0)}, "ask for offlineCores of at least 1, or for policy best-effort"},
		"a ceiling below the guarantee":     {nil, []part{with(guaranteed(50), `"burst":{"ceiling":49}`)}, "must not be below the guaranteed cores of 50"},
		"a ceiling under a fixed share":     {nil, []part{with(fixedShare(50), `"burst":{"ceiling":60}`)}, "policy fixed-share takes no ceiling, only guaranteed-burst-share and native-burst-share do"},
		"a ceiling under best effort":       {nil, []part{with(bestEffort(), `"burst":{"ceiling":60}`)}, "policy best-effort takes no ceiling"},
		"one wrong share among right ones":  {nil, []part{guaranteed(20), fixedShare(0)}, "request r1, card gpu-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t, t.TempDir())
			for i, p := range tc.held {
				_, err := node.Prepare(t.Context(), claimOf(fmt.Sprintf("held-%d", i), p))
				require.NoError(t, err)
			}
			want := claimOf("want", tc.want...)
			prepared, err := node.Prepare(t.Context(), want)
			if tc.says == "" {
				require.NoError(t, err)
				require.Len(t, prepared, len(tc.want))
				return
			}
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, "claim team/want, request r")
			require.Equal(t, len(tc.held) > 0, prepare.IsTransient(err), "only a holder that goes makes room")
			require.Empty(t, files(t, node, string(want.UID)), "nothing is left behind")
		})
	}
}
