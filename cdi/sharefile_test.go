// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// documented is the share that CONTRACT.md shows.
func documented() share.Share {
	return shareOf(uidA, "gpu", "11111111-1111-1111-1111-111111111111", cardA)
}

func contract(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("CONTRACT.md")
	require.NoError(t, err)
	return string(text)
}

func TestTheContractShowsWhatIsWritten(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(contract(t))
	require.Len(t, example, 2, "CONTRACT.md has an example")
	data, err := ShareFile(documented(), cardA)
	require.NoError(t, err)
	require.Equal(t, string(data), example[1])

	doc, err := ParseShareFile([]byte(example[1]))
	require.NoError(t, err)
	require.Equal(t, documented(), doc.Share())
	require.Equal(t, documented().Key(), doc.Key)
}

func TestTheContractNamesEachField(t *testing.T) {
	t.Parallel()
	var fields func(reflect.Type, string) []string
	fields = func(typ reflect.Type, prefix string) []string {
		var names []string
		for f := range typ.Fields() {
			name := prefix + strings.TrimSuffix(f.Tag.Get("json"), ",omitempty")
			if f.Type.Kind() == reflect.Struct {
				names = append(names, fields(f.Type, name+".")...)
				continue
			}
			names = append(names, name)
		}
		return names
	}
	want := fields(reflect.TypeFor[ShareDocument](), "")
	var got []string
	_, table, found := strings.Cut(contract(t), "| field |")
	require.True(t, found)
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	require.Equal(t, want, got, "in the order in which they are written")
	for _, p := range share.Policies() {
		require.Contains(t, table, "`"+string(p)+"`")
	}
	for _, c := range share.Classes() {
		require.Contains(t, table, "`"+string(c)+"`")
	}
}

func TestShareFileRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*share.Share)
		says   string
	}{
		{"a share of another card", func(s *share.Share) { s.Card = cardB.UUID }, "not on " + string(cardA.UUID)},
		{"a policy that nobody knows", func(s *share.Share) { s.Policy = "fair" }, `policy "fair" is not one of`},
		{"a class that nobody knows", func(s *share.Share) { s.Class = "" }, `class "" is not one of`},
		{"more than a whole card", func(s *share.Share) { s.Limits.Cores = 101 }, "limits.cores is 101"},
		{"less than nothing of the offline ledger", func(s *share.Share) { s.Limits.OfflineCores = -1 }, "limits.offlineCores is -1"},
		{"memory below zero", func(s *share.Share) { s.Limits.Memory = -1 }, "limits.memoryMiB is -1"},
		{"a ceiling above the card", func(s *share.Share) { s.BurstCeiling = 200 }, "burstCeiling is 200"},
		{"a claim without a UID", func(s *share.Share) { s.Claim.UID = "" }, "not usable as a file name"},
		{"a name that is not text", func(s *share.Share) { s.Claim.Name = "a\xffb" }, "not valid UTF-8"},
		{"a name of a size that no name has", func(s *share.Share) { s.Request = strings.Repeat("x", 70_000) }, "more than 65536"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := documented()
			row.change(&s)
			_, err := ShareFile(s, cardA)
			require.ErrorContains(t, err, row.says)
		})
	}
}

func TestParseShareFile(t *testing.T) {
	t.Parallel()
	written, err := ShareFile(documented(), cardA)
	require.NoError(t, err)
	good := string(written)
	replace := func(old, with string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, with, 1)
	}
	for _, row := range []struct {
		name, data, says string
	}{
		{"a field that was added is passed over", replace(`"version": 1,`, `"version": 1, "added": {"x": [1]},`), ""},
		{"a field that was added below another is passed over", replace(`"cores"`, `"bandwidth": 7, "cores"`), ""},
		{"a higher version", replace(`"version": 1`, `"version": 2`), "newer than this program"},
		{"a higher version whose fields have other types", `{"version": 7, "key": 1, "limits": "none"}`, "newer than this program"},
		{"version zero", replace(`"version": 1`, `"version": 0`), "not a positive number"},
		{"no version", replace(`"version": 1,`, ``), "not a positive number"},
		{"a version in other letters", replace(`"version"`, `"Version"`), "not a positive number"},
		{"a version given twice", replace(`"version": 1,`, `"version": 1, "version": 1,`), `duplicate field "version"`},
		{"a limit given twice", replace(`"memoryMiB": 8192`, `"memoryMiB": 8192, "memoryMiB": 16384`), `duplicate field "limits.memoryMiB"`},
		{"a limit that is text", replace(`"memoryMiB": 8192`, `"memoryMiB": "8192"`), "cannot unmarshal string"},
		{"a limit with a fraction", replace(`"cores": 30`, `"cores": 30.5`), "cannot unmarshal number"},
		{"a limit that no integer holds", replace(`"memoryMiB": 8192`, `"memoryMiB": 99999999999999999999`), "cannot unmarshal number"},
		{"a limit below zero", replace(`"memoryMiB": 8192`, `"memoryMiB": -8192`), "below zero"},
		{"a card with less than no memory", replace(`"memoryMiB": 24064`, `"memoryMiB": -1`), "card.memoryMiB is -1"},
		{"a key of another claim", replace(`"uid": "8b`, `"uid": "9b`), "is not one of claim"},
		{"a key that leaves its directory", replace(`"key": "8b`, `"key": "../8b`), "not usable as a file name"},
		{"no card", replace(`"uuid": "`+string(cardA.UUID)+`"`, `"uuid": ""`), "card.uuid is missing"},
		{"nothing", "", "unexpected end"},
		{"null", "null", "not a positive number"},
		{"a list", "[]", "cannot unmarshal array"},
		{"half of it", good[:len(good)/2], "unexpected end"},
		{"two documents", good + good, "after top-level value"},
		{"a file of zero bytes, as an unsynced disk leaves it", strings.Repeat("\x00", len(good)), "invalid character"},
		{"more than a share.json can have", good + strings.Repeat(" ", 64<<10), "more than 65536"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			doc, err := ParseShareFile([]byte(row.data))
			if row.says == "" {
				require.NoError(t, err)
				require.Equal(t, documented(), doc.Share())
				return
			}
			require.ErrorContains(t, err, row.says)
			require.Zero(t, doc, "nothing comes back with an error")
			if row.says == "newer than this program" {
				require.ErrorIs(t, err, ErrVersion)
			}
		})
	}
}

func TestShareFileKeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, -1, 253)
		percent := rapid.IntRange(0, 100)
		want := share.Share{
			ID: share.ID{
				Claim: share.Claim{
					UID:       rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,35}`).Draw(t, "uid"),
					Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name"),
				},
				Request: text.Draw(t, "request"), Pool: text.Draw(t, "pool"),
				Device: text.Draw(t, "device"), ShareID: text.Draw(t, "shareID"),
			},
			Card: cardA.UUID,
			Limits: share.Limits{
				Cores:        card.Percent(percent.Draw(t, "cores")),
				OfflineCores: card.Percent(percent.Draw(t, "offlineCores")),
				Memory:       card.MiB(rapid.Int64Min(0).Draw(t, "memory")),
			},
			Policy:       rapid.SampledFrom(share.Policies()).Draw(t, "policy"),
			Class:        rapid.SampledFrom(share.Classes()).Draw(t, "class"),
			BurstCeiling: card.Percent(percent.Draw(t, "burstCeiling")),
			Whole:        rapid.Bool().Draw(t, "whole"),
		}
		data, err := ShareFile(want, cardA)
		require.NoError(t, err)
		again, err := ShareFile(want, cardA)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again))
		doc, err := ParseShareFile(data)
		require.NoError(t, err)
		require.Equal(t, want, doc.Share())
	})
}

func FuzzParseShareFile(f *testing.F) {
	data, err := ShareFile(documented(), cardA)
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"limits":{"cores":1e2}}`))
	f.Add([]byte("[[[["))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := ParseShareFile(data)
		if err != nil {
			require.Zero(t, doc)
			return
		}
		// What is read is a share that can be written, and reads the same.
		if doc.Key != doc.Share().Key() {
			return // made by another release, or by hand
		}
		written, err := ShareFile(doc.Share(), card.Card{
			UUID: doc.Card.UUID, Vendor: doc.Card.Vendor, ProductName: doc.Card.ProductName,
			PCIBusID: doc.Card.PCIBusID, Memory: doc.Card.Memory, Simulated: doc.Card.Simulated,
		})
		require.NoError(t, err)
		again, err := ParseShareFile(written)
		require.NoError(t, err)
		again.Version = doc.Version
		require.Equal(t, doc, again)
	})
}
