// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

func onCard(claim string, c card.UUID, cores card.Percent, mem card.MiB) share.Share {
	return share.Share{
		ID:     share.ID{Claim: share.Claim{UID: claim, Namespace: "team", Name: claim}, Request: "gpu", Device: string(c), ShareID: claim},
		Card:   c,
		Limits: share.Limits{Cores: cores, Memory: mem},
	}
}

func TestKeyTellsSharesApart(t *testing.T) {
	t.Parallel()
	base := share.ID{Claim: share.Claim{UID: "8b101b5f-9bfc-453d-9d43-83ec3d61b3d8"}, Request: "a", Pool: "node1", Device: "gpu-0", ShareID: "s1"}
	seen := map[share.Key]string{base.Key(): "base"}
	for what, change := range map[string]func(*share.ID){
		"another request":                func(id *share.ID) { id.Request = "b" },
		"another card":                   func(id *share.ID) { id.Device = "gpu-1" },
		"another pool":                   func(id *share.ID) { id.Pool = "node2" },
		"the same card a second time":    func(id *share.ID) { id.ShareID = "s2" },
		"another claim":                  func(id *share.ID) { id.Claim.UID = "8b101b5f-9bfc-453d-9d43-83ec3d61b3d9" },
		"a separator moved between them": func(id *share.ID) { id.Request, id.Pool = "an", "ode1" },
	} {
		id := base
		change(&id)
		require.NotContains(t, seen, id.Key(), "%s has the key of %s", what, seen[id.Key()])
		seen[id.Key()] = what
	}
	renamed := base
	renamed.Claim.Name, renamed.Claim.Namespace = "x", "y"
	require.Equal(t, base.Key(), renamed.Key(), "names are for people and do not enter the key")
	require.True(t, base.Key().BelongsTo(base.Claim.UID))
	require.False(t, base.Key().BelongsTo(base.Claim.UID[:35]), "a prefix of a UID is another claim")
	for name, key := range map[string]share.Key{
		"no digest": "8b101b5f", "a short digest": "8b101b5f-12345", "not hexadecimal": "8b101b5f-12345x7890",
		"no UID": "-1234567890", "a path": "../etc-1234567890", "nothing": "",
	} {
		_, ok := key.ClaimUID()
		require.False(t, ok, name)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	const a, b card.UUID = "GPU-a", "GPU-b"
	total := share.Capacity{Cores: 100, OfflineCores: 100, Memory: 24 << 10, Slots: 16}
	whole := onCard("whole", a, 100, 24<<10)
	whole.Whole = true
	offline := onCard("offline", a, 0, 1024)
	offline.Limits.OfflineCores = 100
	slots := func(n int) []share.Share {
		var out []share.Share
		for i := range n {
			out = append(out, onCard(fmt.Sprintf("c%d", i), a, 1, 256))
		}
		return out
	}
	for name, tc := range map[string]struct {
		held []share.Share
		want share.Share
		err  string
	}{
		"an empty card takes a share":                  {nil, onCard("w", a, 30, 4096), ""},
		"an empty card is given whole":                 {nil, whole, ""},
		"exactly full is full":                         {[]share.Share{onCard("x", a, 70, 20<<10)}, onCard("w", a, 30, 4096), ""},
		"one percent too much":                         {[]share.Share{onCard("x", a, 71, 4096)}, onCard("w", a, 30, 4096), "100 % of cores, 71 % are held by team/x"},
		"one MiB too much":                             {[]share.Share{onCard("x", a, 10, 20481)}, onCard("w", a, 30, 4096), "24576 MiB of memory, 20481 MiB are held by team/x"},
		"another card's holders do not count":          {[]share.Share{onCard("x", b, 100, 24<<10)}, onCard("w", a, 30, 4096), ""},
		"the same share again is not counted twice":    {[]share.Share{onCard("w", a, 60, 20<<10)}, onCard("w", a, 60, 20<<10), ""},
		"the 16th share fits":                          {slots(15), onCard("w", a, 1, 256), ""},
		"the 17th share does not":                      {slots(16), onCard("w", a, 1, 256), "16 of slots"},
		"nobody joins a whole card":                    {[]share.Share{whole}, onCard("w", a, 0, 256), "held by team/whole (uid whole)"},
		"a card in use is not given whole":             {slots(1), whole, "held by team/c0"},
		"offline compute has its own ledger":           {[]share.Share{onCard("x", a, 100, 4096)}, offline, ""},
		"offline compute is full too":                  {[]share.Share{offline}, func() share.Share { s := offline; s.Claim.UID, s.ShareID = "2", "2"; return s }(), "offlineCores"},
		"a share without compute fits on a busy card":  {[]share.Share{onCard("x", a, 100, 4096)}, onCard("w", a, 0, 4096), ""},
		"a full card takes no memory, whatever it is":  {[]share.Share{onCard("x", a, 0, 24<<10)}, onCard("w", a, 0, 256), "memory"},
		"an already over-committed card takes no more": {[]share.Share{onCard("x", a, 80, 1), onCard("y", a, 80, 1)}, onCard("w", a, 1, 256), "160 % are held by team/x (uid x), team/y (uid y)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := share.Fit(total, tc.held, tc.want)
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			var over *share.OverCommitError
			require.ErrorAs(t, err, &over)
			require.ErrorContains(t, err, tc.err)
			require.ErrorContains(t, err, string(tc.want.Card))
			require.ErrorContains(t, err, tc.want.Claim.String())
		})
	}
}

// Whatever is offered in whatever order, what Fit lets in never passes the card.
func TestFitNeverOverCommits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := share.Capacity{Cores: 100, OfflineCores: 100, Memory: card.MiB(rapid.Int64Range(256, 1<<20).Draw(t, "memory")), Slots: rapid.IntRange(1, 32).Draw(t, "slots")}
		var held []share.Share
		var sum share.Limits
		for i := range rapid.IntRange(1, 60).Draw(t, "n") {
			s := onCard(fmt.Sprint(i), "GPU-a", card.Percent(rapid.IntRange(0, 100).Draw(t, "cores")), card.MiB(rapid.Int64Range(1, int64(total.Memory)).Draw(t, "mem")))
			s.Limits.OfflineCores = card.Percent(rapid.IntRange(0, 100).Draw(t, "offline"))
			if share.Fit(total, held, s) == nil {
				held = append(held, s)
				sum.Cores += s.Limits.Cores
				sum.OfflineCores += s.Limits.OfflineCores
				sum.Memory += s.Limits.Memory
			}
		}
		require.LessOrEqual(t, sum.Cores, total.Cores)
		require.LessOrEqual(t, sum.OfflineCores, total.OfflineCores)
		require.LessOrEqual(t, sum.Memory, total.Memory)
		require.LessOrEqual(t, len(held), total.Slots)
		require.NotEmpty(t, held, "the first share always fits")
	})
}
