// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/golden"
)

const uid = "8b101b5f-9bfc-453d-9d43-83ec3d61b3d8"

// record has every field set, two shares of one card among them.
func record() checkpoint.Record {
	claim := share.Claim{UID: uid, Namespace: "vision", Name: "train-x<&>\u2028"}
	id := func(request, device, shareID string) share.ID {
		return share.ID{Claim: claim, Request: request, Pool: "node1", Device: device, ShareID: shareID}
	}
	return checkpoint.Record{
		Claim: claim, Phase: checkpoint.Prepared, BootID: "c1b2f4de-2f0a-4d8e-9c3b-5a6b7c8d9e0f", Runtime: "sha256:0123",
		Shares: []share.Share{
			{
				ID: id("train", "gpu-a", "228ad41a-d371-4d0e-9715-0da00c6c3c15"), Card: "GPU-A",
				Limits: share.Limits{Cores: 30, Memory: 4096}, Policy: share.GuaranteedBurst, Class: share.Online, BurstCeiling: 80,
			},
			{
				ID: id("train/sub", "gpu-a", "f159c8b0-cc3d-468e-8ec4-43aa8b6d31b0"), Card: "GPU-A",
				Limits: share.Limits{OfflineCores: 20, Memory: 2048}, Policy: share.Fixed, Class: share.Offline, BurstCeiling: 100,
			},
			{
				ID: id("whole", "gpu-b", ""), Card: "GPU-B", Whole: true,
				Limits: share.Limits{Cores: 100, Memory: 24 << 10}, Policy: share.BestEffort, Class: share.NoClass, BurstCeiling: 100,
			},
		},
	}
}

func encode(t require.TestingT, r checkpoint.Record) []byte {
	data, err := checkpoint.Encode(r)
	require.NoError(t, err)
	return data
}

// file makes the content of a file as the format of every version says, without
// the code that is tested.
func file(version int, record string) []byte {
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(record)); err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(version) + " " + compact.String()))
	return fmt.Appendf(nil, `{"version":%d,"checksum":"sha256:%x","record":%s}`, version, sum, record)
}

func TestGolden(t *testing.T) {
	t.Parallel()
	got := encode(t, record())
	// A change of what is written: is it readable for the last release? See doc.go.
	golden.Equal(t, fmt.Sprintf("record-v%d.json", checkpoint.Version), got)
	decoded, err := checkpoint.Decode(got, uid)
	require.NoError(t, err)
	require.Equal(t, record(), decoded)
}

func drawRecord(t *rapid.T) checkpoint.Record {
	text := rapid.String()
	percent := func(label string) card.Percent { return card.Percent(rapid.IntRange(0, 100).Draw(t, label)) }
	claim := share.Claim{UID: text.Draw(t, "uid"), Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name")}
	r := checkpoint.Record{
		Claim: claim, BootID: text.Draw(t, "boot"), Runtime: text.Draw(t, "runtime"),
		Phase: rapid.SampledFrom([]checkpoint.Phase{checkpoint.Preparing, checkpoint.Prepared, checkpoint.Unpreparing}).Draw(t, "phase"),
	}
	for range rapid.IntRange(0, 5).Draw(t, "shares") {
		r.Shares = append(r.Shares, share.Share{
			ID:     share.ID{Claim: claim, Request: text.Draw(t, "request"), Pool: text.Draw(t, "pool"), Device: text.Draw(t, "device"), ShareID: text.Draw(t, "shareID")},
			Card:   card.UUID(text.Draw(t, "card")),
			Limits: share.Limits{Cores: percent("cores"), OfflineCores: percent("offline"), Memory: card.MiB(rapid.Int64().Draw(t, "memory"))},
			Policy: rapid.SampledFrom(share.Policies()).Draw(t, "policy"), Class: rapid.SampledFrom(share.Classes()).Draw(t, "class"),
			BurstCeiling: percent("ceiling"), Whole: rapid.Bool().Draw(t, "whole"),
		})
	}
	return r
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		data := encode(t, want)
		require.Equal(t, data, encode(t, want), "equal records give equal bytes")
		got, err := checkpoint.Decode(data, want.Claim.UID)
		require.NoError(t, err)
		require.Equal(t, want, got)
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, data))
		got, err = checkpoint.Decode(compact.Bytes(), want.Claim.UID)
		require.NoError(t, err, "white space between the parts of a file means nothing")
		require.Equal(t, want, got)
	})
}

// A flip either shows, or changes nothing: the decoder takes the names of the
// three outer fields in any case.
func TestEveryFlippedBitShows(t *testing.T) {
	t.Parallel()
	want := record()
	data := encode(t, want)
	harmless := 0
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			got, err := checkpoint.Decode(data, uid)
			if err == nil {
				require.Equal(t, want, got, "byte %d, bit %d: %s", i, bit, data)
				harmless++
			} else {
				require.True(t, isDamaged(err), "byte %d, bit %d: %v", i, bit, err)
			}
			data[i] ^= 1 << bit
		}
	}
	require.Equal(t, len("version")+len("checksum")+len("record"), harmless)
}

func TestEveryTruncationShows(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"a record of this version": encode(t, record()),
		"a record of a newer one":  append(file(checkpoint.Version+1, `{"what":["ever"]}`), '\n'),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := range len(data) - 1 {
				_, err := checkpoint.Decode(data[:n], uid)
				require.True(t, isDamaged(err), "cut to %d bytes: %v", n, err)
			}
			_, whole := checkpoint.Decode(data, uid)
			_, cut := checkpoint.Decode(data[:len(data)-1], uid)
			require.Equal(t, whole, cut, "the last line break does not count")
			require.NotErrorIs(t, whole, checkpoint.ErrDamaged)
		})
	}
}

// isDamaged is for loops: damaged, and nothing else as well.
func isDamaged(err error) bool {
	return errors.Is(err, checkpoint.ErrDamaged) && !errors.Is(err, checkpoint.ErrNewer)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	const good = `{"claim":{"uid":"` + uid + `"},"phase":"Prepared","bootID":"b","shares":null}`
	with := func(old, changed string) string { return strings.Replace(good, old, changed, 1) }
	for name, tc := range map[string]struct {
		data []byte
		is   error
		says string
	}{
		"a record with little in it":                                {file(1, good), nil, ""},
		"a field that a later release added":                        {file(1, with(`"phase"`, `"colour":{"red":1},"phase"`)), nil, ""},
		"an outer field that was added":                             {bytes.Replace(file(1, good), []byte(`{"version"`), []byte(`{"written":"today","version"`), 1), nil, ""},
		"a newer version":                                           {file(2, good), checkpoint.ErrNewer, "format 2, this driver reads up to 1"},
		"a newer version that is nothing we know":                   {file(7, `["a","b"]`), checkpoint.ErrNewer, "format 7"},
		"a newer version of another claim: its name may have moved": {file(2, with(uid, "another")), checkpoint.ErrNewer, "format 2"},
		"a newer version that is damaged":                           {bytes.Replace(file(2, good), []byte("Prepared"), []byte("prepared"), 1), checkpoint.ErrDamaged, "checksum"},
		"a version that was raised by hand":                         {bytes.Replace(file(1, good), []byte(`"version":1`), []byte(`"version":2`), 1), checkpoint.ErrDamaged, "checksum"},
		"an empty file":                                             {nil, checkpoint.ErrDamaged, "unexpected end"},
		"zeros, as a power cut leaves them":                         {make([]byte, 512), checkpoint.ErrDamaged, "invalid character"},
		"null":                                                      {[]byte("null"), checkpoint.ErrDamaged, "record is damaged"},
		"an empty object":                                           {[]byte("{}"), checkpoint.ErrDamaged, "record is damaged"},
		"a text":                                                    {[]byte(`"record"`), checkpoint.ErrDamaged, "cannot unmarshal string"},
		"two records":                                               {append(file(1, good), file(1, good)...), checkpoint.ErrDamaged, "after top-level value"},
		"version 0":                                                 {file(0, good), checkpoint.ErrDamaged, "version 0"},
		"a version below 0":                                         {file(-1, good), checkpoint.ErrDamaged, "version -1"},
		"a version that is a text":                                  {[]byte(`{"version":"1","checksum":"","record":{}}`), checkpoint.ErrDamaged, "version"},
		"a version past all integers":                               {[]byte(`{"version":99999999999999999999,"checksum":"","record":{}}`), checkpoint.ErrDamaged, "version"},
		"no checksum":                                               {[]byte(`{"version":1,"record":` + good + `}`), checkpoint.ErrDamaged, `checksum ""`},
		"no record":                                                 {[]byte(`{"version":1,"checksum":"sha256:00"}`), checkpoint.ErrDamaged, "record is damaged"},
		"a record that is null":                                     {file(1, "null"), checkpoint.ErrDamaged, "record is damaged"},
		"a record that is a list":                                   {file(1, "[]"), checkpoint.ErrDamaged, "cannot unmarshal array"},
		"a share that is a text":                                    {file(1, with("null", `["x"]`)), checkpoint.ErrDamaged, "shares"},
		"half a percent":                                            {file(1, with("null", `[{"limits":{"cores":0.5}}]`)), checkpoint.ErrDamaged, "cores"},
		"the record of another claim":                               {file(1, with(uid, "another")), checkpoint.ErrDamaged, `it is of claim "another", its name says "` + uid + `"`},
		"a record of no claim":                                      {file(1, `{"phase":"Prepared"}`), checkpoint.ErrDamaged, `of claim ""`},
		"no phase":                                                  {file(1, with("Prepared", "")), checkpoint.ErrDamaged, `phase ""`},
		"a phase nobody knows":                                      {file(1, with("Prepared", "Pondering")), checkpoint.ErrDamaged, `phase "Pondering" is none of Preparing, Prepared, Unpreparing`},
		"a phase in another case":                                   {file(1, with("Prepared", "prepared")), checkpoint.ErrDamaged, `phase "prepared"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := checkpoint.Decode(tc.data, uid)
			if tc.is == nil {
				require.NoError(t, err)
				require.Equal(t, checkpoint.Record{Claim: share.Claim{UID: uid}, Phase: checkpoint.Prepared, BootID: "b"}, r)
				return
			}
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.says)
			require.Zero(t, r)
			for _, other := range []error{checkpoint.ErrDamaged, checkpoint.ErrNewer} {
				if other != tc.is { //nolint:errorlint // the sentinels themselves
					require.NotErrorIs(t, err, other)
				}
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, record()), uid)
	f.Add(file(1, `{"claim":{"uid":"u"},"phase":"Preparing","shares":[]}`), "u")
	f.Add(file(2, `{}`), "u")
	f.Add([]byte(`{"version":1,"checksum":"sha256:","record":{}}`), "")
	f.Fuzz(func(t *testing.T, data []byte, uid string) {
		r, err := checkpoint.Decode(data, uid)
		if err != nil {
			require.NotEqual(t, errors.Is(err, checkpoint.ErrNewer), errors.Is(err, checkpoint.ErrDamaged), "%v", err)
			require.Zero(t, r)
			return
		}
		require.Equal(t, uid, r.Claim.UID)
		again, err := checkpoint.Decode(encode(t, r), uid)
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
