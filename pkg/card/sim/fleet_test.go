// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/sim"
	"github.com/tranche-dra/tranche/tests/golden"
)

func decode(t require.TestingT, text string) *sim.Fleet {
	fleet, err := sim.Decode([]byte(text))
	require.NoError(t, err)
	return fleet
}

func TestFleetFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			got, err := json.MarshalIndent(decode(t, string(raw)).Present("node1"), "", "  ")
			require.NoError(t, err)
			golden.Equal(t, strings.TrimSuffix(filepath.Base(file), ".yaml")+".golden.json", append(got, '\n'))
		})
	}
}

func TestMalformedFleets(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, err string }{
		"an empty file is being written":         {"\n", `file is empty: write "cards: []"`},
		"a fleet without cards must say so":      {"cards:\n", "cards: Required value"},
		"a comment only is no fleet":             {"# nothing\n", "cards: Required value"},
		"two documents are one too many":         {"cards: []\n---\ncards: []\n", "found several"},
		"text that is not YAML":                  {"cards: [", "decode fleet"},
		"an unknown field":                       {"cards:\n- model: T4\n  colour: red\n", `unknown field "cards[0].colour"`},
		"a field in another case":                {"cards:\n- Model: T4\n", `unknown field "cards[0].Model"`},
		"a field given twice":                    {"cards:\n- model: T4\n  model: T4\n", `key "model" already set`},
		"a text where a number belongs":          {"cards:\n- {model: T4, count: many}\n", "count"},
		"a version that YAML takes for a number": {"cards:\n- {model: T4, cudaVersion: 13.0}\n", "cudaVersion of type string"},
		"another kind":                           {"kind: Pod\ncards: []\n", `kind: Unsupported value: "Pod"`},
		"another version":                        {"apiVersion: v1\ncards: []\n", `apiVersion: Unsupported value: "v1"`},
		"a model that nobody knows":              {"cards:\n- model: T5\n", `cards[0].model: Unsupported value: "T5": supported values: "V100-16GB"`},
		"a wrong default":                        {"defaults: {model: T5}\ncards: []\n", `defaults.model: Unsupported value: "T5"`},
		"a card of no size":                      {"cards:\n- productName: X\n", "cards[0].memory: Required value: name a model"},
		"memory that is no quantity":             {"cards:\n- memory: 24 GB\n", `cards[0].memory: Invalid value: "24 GB": want a quantity`},
		"memory below nothing":                   {"cards:\n- memory: -1Gi\n", `cards[0].memory: Invalid value: "-1Gi": want 0 to 1Pi`},
		"memory beyond belief":                   {"cards:\n- memory: 1Ei\n", "cards[0].memory: Invalid value"},
		"memory that is a list":                  {"cards:\n- memory: [1]\n", `cards[0].memory: Invalid value: "[1]"`},
		"a reserve larger than the card":         {"defaults: {reservedMemory: 16Gi}\ncards:\n- model: T4\n", `cards[0].reservedMemory: Invalid value: "16Gi": is more than the card has`},
		"a vendor that nobody knows":             {"cards:\n- {model: T4, vendor: acme}\n", `cards[0].vendor: Unsupported value: "acme"`},
		"a name that cannot be published":        {"cards:\n- {model: T4, productName: " + strings.Repeat("x", 65) + "}\n", "cards[0].productName: Too long"},
		"a root that is no root":                 {"cards:\n- {model: T4, pcieRoot: '0000:15'}\n", "cards[0].pcieRoot: Invalid value"},
		"an address that is no address":          {"cards:\n- {model: T4, pciBusID: '1b:00.0'}\n", "cards[0].pciBusID: Invalid value"},
		"a NUMA node below unknown":              {"cards:\n- {model: T4, numaNode: -2}\n", "cards[0].numaNode: Invalid value: -2"},
		"a minor below unknown":                  {"cards:\n- {model: T4, minor: -2}\n", "cards[0].minor: Invalid value: -2"},
		"an index below 0":                       {"cards:\n- {model: T4, index: -1}\n", "cards[0].index: Invalid value: -1"},
		"an index beyond belief":                 {"cards:\n- {model: T4, index: 99999999999}\n", "cards[0].index: Invalid value"},
		"a UUID with blanks":                     {"cards:\n- {model: T4, uuid: 'GPU 1'}\n", "cards[0].uuid: Invalid value"},
		"no cards of a kind":                     {"cards:\n- {model: T4, count: 0}\n", "cards[0].count: Invalid value: 0: want at least 1"},
		"too many cards":                         {"cards:\n- {model: T4, count: 1000}\n- {model: T4, count: 25}\n", "cards: Too many: 1025: must have at most 1024"},
		"more cards than can be counted":         {"cards:\n- {model: T4, count: 9223372036854775807}\n- {model: T4, count: 9223372036854775807}\n", "cards: Too many"},
		"two cards of one UUID in an entry":      {"cards:\n- {model: T4, count: 2, uuid: a}\n", "cards[0].uuid: Forbidden: 2 cards cannot have the same one"},
		"two cards of one index in an entry":     {"cards:\n- {model: T4, count: 2, index: 4}\n", "cards[0].index: Forbidden"},
		"two cards of one minor in an entry":     {"cards:\n- {model: T4, count: 2, minor: 4}\n", "cards[0].minor: Forbidden"},
		"two cards of one address in an entry":   {"cards:\n- {model: T4, count: 2, pciBusID: '0000:00:00.0'}\n", "cards[0].pciBusID: Forbidden"},
		"two entries of one UUID":                {"cards:\n- {model: T4, uuid: a}\n- {model: T4, uuid: a}\n", `cards[1].uuid: Duplicate value: "a"`},
		"two entries of one index":               {"cards:\n- {model: T4, index: 1}\n- {model: T4, uuid: b}\n", "cards[1].index: Duplicate value: 1"},
		"one address in two notations":           {"cards:\n- {model: T4, pciBusID: '0000:1b:00.0'}\n- {model: T4, pciBusID: '00000000:1b:00.0'}\n", "cards[1].pciBusID: Duplicate value"},
		"a fault without a kind":                 {"cards:\n- {model: T4, faults: [{message: x}]}\n", "cards[0].faults[0].kind: Required value"},
		"two errors are both told":               {"cards:\n- {model: T5}\n- {model: T6}\n", "cards[1].model"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet, err := sim.Decode([]byte(tc.text))
			require.ErrorContains(t, err, tc.err)
			require.Nil(t, fleet)
		})
	}
}

func TestEveryModelIsComplete(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, sim.Models())
	for _, model := range sim.Models() {
		c := decode(t, "cards:\n- model: "+model+"\n").Present("n")[0]
		require.NotEmpty(t, c.ProductName, model)
		require.NotEmpty(t, c.Architecture, model)
		require.Regexp(t, `^\d+\.\d$`, c.ComputeCapability, model)
		require.GreaterOrEqual(t, c.Memory, card.MiB(15<<10), model)
		require.True(t, c.Shareable(), model)
	}
}

func TestFactsAreTakenFromTheNearest(t *testing.T) {
	t.Parallel()
	cards := decode(t, `
defaults: {model: A100-80GB, driverVersion: '570.1', numaNode: 3, wholeOnly: true}
cards:
- {}
- {memory: 1536Ki, numaNode: -1, wholeOnly: false, architecture: Odd}
- {model: H100, driverVersion: "580.2", memory: 1073741824, reservedMemory: 1Mi}
- {memory: "0"}
- {vendor: amd, wholeOnly: false}
`).Present("n")
	require.Len(t, cards, 5)
	require.Equal(t, card.MiB(81920), cards[0].Memory)
	require.Equal(t, "570.1", cards[0].DriverVersion)
	require.Equal(t, 3, cards[0].NUMANode)
	require.False(t, cards[0].Shareable())

	require.Equal(t, card.MiB(1), cards[1].Memory, "memory is floored to MiB")
	require.Equal(t, card.Unknown, cards[1].NUMANode)
	require.True(t, cards[1].Shareable())
	require.Equal(t, "Odd", cards[1].Architecture)
	require.Equal(t, "NVIDIA A100-SXM4-80GB", cards[1].ProductName)

	require.Equal(t, "NVIDIA H100 80GB HBM3", cards[2].ProductName)
	require.Equal(t, "580.2", cards[2].DriverVersion)
	require.Equal(t, card.MiB(1023), cards[2].Memory)

	require.Zero(t, cards[3].Memory, "0 is unknown, not the model's")
	require.False(t, cards[4].Shareable(), "cards of other vendors are whole, whatever is said")
	for _, c := range cards {
		require.True(t, c.Simulated)
	}
}

func TestNamesDependOnNodeAndIndexOnly(t *testing.T) {
	t.Parallel()
	uuids := func(node, text string) []card.UUID {
		var out []card.UUID
		for _, c := range decode(t, text).Present(node) {
			require.Regexp(t, `^GPU-[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, c.UUID)
			out = append(out, c.UUID)
		}
		return out
	}
	two := uuids("node1", "cards:\n- {model: T4, count: 2}\n")
	require.Equal(t, two, uuids("node1", "cards:\n- {model: H100, count: 2, driverVersion: '1'}\n"))
	require.Equal(t, []card.UUID{two[1], two[0]}, uuids("node1", "cards:\n- {model: T4, index: 1}\n- {model: T4, index: 0}\n"))
	require.Equal(t, two[1:], uuids("node1", "cards:\n- {model: T4, absent: true}\n- {model: T4}\n"), "an absent card keeps its place")
	require.NotEqual(t, two[0], two[1])
	require.NotContains(t, two, uuids("node2", "cards:\n- model: T4\n")[0])
}

func TestLargeFleetsHaveDifferentAddresses(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	roots := map[string]int{}
	for _, c := range decode(t, "cards:\n- {model: T4, count: 1024}\n").Present("n") {
		require.Regexp(t, `^[0-9a-f]{8}:[0-9a-f]{2}:00\.0$`, c.PCIBusID)
		require.False(t, seen[c.PCIBusID], c.PCIBusID)
		seen[c.PCIBusID] = true
		roots[c.PCIeRoot]++
	}
	for root, n := range roots {
		require.LessOrEqual(t, n, 2, root)
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(raw))
	}
	f.Add("cards: [{memory: 1e99}, {memory: true}, {count: -1}]")
	f.Add("---\n# c\n---\ncards: []\n...\n")
	f.Fuzz(func(t *testing.T, text string) {
		fleet, err := sim.Decode([]byte(text))
		if err != nil {
			require.Nil(t, fleet)
			return
		}
		cards := fleet.Present("n")
		require.Equal(t, cards, fleet.Present("n"))
		seen := map[card.UUID]bool{}
		for _, c := range cards {
			require.False(t, seen[c.UUID])
			seen[c.UUID] = true
			require.GreaterOrEqual(t, c.Memory, card.MiB(0))
			require.NotEmpty(t, c.UUID)
		}
		again, err := json.Marshal(fleet)
		require.NoError(t, err)
		back, err := sim.Decode(again)
		require.NoError(t, err, string(again))
		require.Equal(t, cards, back.Present("n"))
	})
}
