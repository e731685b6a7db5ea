// SPDX-License-Identifier: Apache-2.0

package slices_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/slices"
	"github.com/tranche-dra/tranche/tests/golden"
)

const node = "node1"

func shared() slices.Options {
	return slices.Options{NodeName: node, Slots: slices.DefaultSlots, Shareable: true}
}

func a100(index int) card.Card {
	return card.Card{
		UUID:  card.UUID(fmt.Sprintf("GPU-8f3c2a10-5b7e-4c21-9d0a-%012x", index)),
		Index: index, Minor: index, Vendor: card.VendorNVIDIA,
		ProductName: "NVIDIA A100-SXM4-80GB", Architecture: "Ampere", ComputeCapability: "8.0",
		DriverVersion: "580.65.06", CUDAVersion: "13.0",
		PCIBusID: fmt.Sprintf("00000000:%02x:00.0", 0x1b+index), PCIeRoot: "pci0000:15", NUMANode: index,
		Memory: 81559,
	}
}

func fleet(n int, change func(int, *card.Card)) []card.Card {
	cards := make([]card.Card, n)
	for i := range cards {
		cards[i] = a100(i)
		if change != nil {
			change(i, &cards[i])
		}
	}
	return cards
}

func encode(t require.TestingT, r resourceslice.DriverResources) string {
	out, err := json.Marshal(r)
	require.NoError(t, err)
	return string(out)
}

func onlyPool(t require.TestingT, r resourceslice.DriverResources) resourceslice.Pool {
	require.Len(t, r.Pools, 1)
	require.Contains(t, r.Pools, node)
	return r.Pools[node]
}

func sizes(p resourceslice.Pool) []int {
	out := []int{}
	for _, s := range p.Slices {
		out = append(out, len(s.Devices))
	}
	return out
}

func TestPublishedModel(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cards []card.Card
		opts  slices.Options
	}{
		"two-cards": {opts: shared(), cards: fleet(2, func(i int, c *card.Card) {
			if i == 1 {
				c.Memory = 24 << 10
			}
		})},
		"faulty-card": {opts: shared(), cards: fleet(1, func(_ int, c *card.Card) {
			c.Faults = []card.Fault{
				{Kind: "XidError", Message: "Xid 79: GPU has fallen off the bus", Evict: true},
				{Kind: "EccError", Message: "double-bit ECC error"},
			}
		})},
		"unknown-facts":   {opts: shared(), cards: []card.Card{{UUID: "GPU-bare", Index: 0, Minor: card.Unknown, NUMANode: card.Unknown}}},
		"other-vendor":    {opts: shared(), cards: []card.Card{{UUID: "amd-0123", Vendor: card.VendorAMD, ProductName: "Instinct MI300X", DriverVersion: "6.10.5", Memory: 196592, NUMANode: 1, WholeOnly: true}}},
		"sharing-refused": {opts: slices.Options{NodeName: node}, cards: fleet(1, nil)},
		"no-cards":        {opts: shared()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := slices.Build(tc.cards, tc.opts)
			requireAccepted(t, got)
			require.Len(t, onlyPool(t, got).Slices, 1)
			text, err := yaml.Marshal(onlyPool(t, got).Slices[0].Devices)
			require.NoError(t, err)
			golden.Equal(t, name+".yaml", text)
		})
	}
}

func TestSlicesAreChunked(t *testing.T) {
	t.Parallel()
	tainted := func(_ int, c *card.Card) { c.Faults = []card.Fault{{Kind: "XidError"}} }
	for name, tc := range map[string]struct {
		cards []card.Card
		sizes []int
	}{
		"no cards are one empty slice":                            {nil, []int{0}},
		"one card is one slice":                                   {fleet(1, nil), []int{1}},
		"64 cards fill one slice":                                 {fleet(64, nil), []int{64}},
		"65 tainted cards are two slices":                         {fleet(65, tainted), []int{64, 1}},
		"200 untainted cards are cut where tainted ones would be": {fleet(200, nil), []int{64, 64, 64, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, notes := slices.Build(tc.cards, shared())
			requireAccepted(t, got)
			require.Empty(t, notes)
			require.Equal(t, tc.sizes, sizes(onlyPool(t, got)))
		})
	}
}

func TestEmptySliceIsNotNull(t *testing.T) {
	t.Parallel()
	got, _ := slices.Build(nil, shared())
	require.Contains(t, encode(t, got), `"Devices":[]`)
}

func TestFirstFitFillsCardZeroFirst(t *testing.T) {
	t.Parallel()
	got, _ := slices.Build([]card.Card{a100(10), a100(2), a100(0), a100(1)}, shared())
	var order []int64
	for _, d := range onlyPool(t, got).Slices[0].Devices {
		order = append(order, *d.Attributes[slices.AttributeIndex].IntValue)
	}
	require.Equal(t, []int64{0, 1, 2, 10}, order)
}

func TestRenumberedCardsKeepTheirNames(t *testing.T) {
	t.Parallel()
	names := func(cards []card.Card) map[string]string {
		out := map[string]string{}
		got, _ := slices.Build(cards, shared())
		for _, d := range onlyPool(t, got).Slices[0].Devices {
			out[*d.Attributes[slices.AttributeUUID].StringValue] = d.Name
		}
		return out
	}
	before := fleet(8, nil)
	after := fleet(8, func(i int, c *card.Card) { c.Index, c.Minor = 7-i, (i+3)%8 })
	require.Len(t, names(before), 8)
	require.Equal(t, names(before), names(after))
}

func TestWhichCardsAreShared(t *testing.T) {
	t.Parallel()
	whole := shared()
	whole.Shareable = false
	for name, tc := range map[string]struct {
		change func(*card.Card)
		opts   slices.Options
		shared bool
		note   string
	}{
		"a card with known memory is shared":                     {func(*card.Card) {}, shared(), true, ""},
		"a card of unknown memory is whole, and one is told":     {func(c *card.Card) { c.Memory = 0 }, shared(), false, "memory is unknown"},
		"a card split by hardware is whole, as meant":            {func(c *card.Card) { c.WholeOnly = true }, shared(), false, ""},
		"two shares of the least size make a card worth sharing": {func(c *card.Card) { c.Memory = 512 }, shared(), true, ""},
		"a card with room for one share is whole":                {func(c *card.Card) { c.Memory = 511 }, shared(), false, "511Mi is less than two shares of 256Mi"},
		"without consumable capacity every card is whole":        {func(*card.Card) {}, whole, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := a100(0)
			tc.change(&c)
			got, notes := slices.Build([]card.Card{c}, tc.opts)
			requireAccepted(t, got)
			d := onlyPool(t, got).Slices[0].Devices[0]
			require.Equal(t, tc.shared, d.AllowMultipleAllocations != nil)
			require.Equal(t, tc.shared, tc.opts.Shares(c))
			if tc.note == "" {
				require.Empty(t, notes)
				return
			}
			require.Len(t, notes, 1)
			require.Equal(t, c.UUID, notes[0].Card)
			require.Contains(t, notes[0].String(), tc.note)
		})
	}
}

func TestSlotsAreCountedNotAskedFor(t *testing.T) {
	t.Parallel()
	for slots, want := range map[int]int64{-1: 16, 0: 16, 1: 1, 4: 4, 64: 64} {
		o := shared()
		o.Slots = slots
		got, _ := slices.Build(fleet(1, nil), o)
		requireAccepted(t, got)
		c := onlyPool(t, got).Slices[0].Devices[0].Capacity[slices.CapacitySlots]
		require.Equal(t, want, c.Value.Value(), "slots %d", slots)
		require.Len(t, c.RequestPolicy.ValidValues, 1)
		require.Equal(t, int64(1), c.RequestPolicy.ValidValues[0].Value())
	}
}

func TestCardsThatCannotBeToldApart(t *testing.T) {
	t.Parallel()
	nameless := a100(3)
	nameless.UUID = ""
	twin := a100(5)
	twin.UUID = card.UUID(strings.ToUpper(string(a100(0).UUID)))
	got, notes := slices.Build([]card.Card{twin, nameless, a100(1), a100(0)}, shared())
	requireAccepted(t, got)
	devices := onlyPool(t, got).Slices[0].Devices
	require.Len(t, devices, 2)
	require.Equal(t, string(a100(0).UUID), *devices[0].Attributes[slices.AttributeUUID].StringValue, "the first of the twins stays")
	require.Len(t, notes, 2)
	require.Contains(t, notes[0].String(), "index 3 at PCI address 00000000:1e:00.0 is not published: it has no UUID")
	require.Contains(t, notes[1].String(), "index 5 at PCI address 00000000:20:00.0 is not published: it has the UUID of the card with index 0")
	require.Equal(t, twin.UUID, notes[1].Card)
}

func TestTwinsOfOneIndexAreChosenAlike(t *testing.T) {
	t.Parallel()
	a, b := a100(0), a100(0)
	b.Minor = 9
	one, notesOne := slices.Build([]card.Card{a, b}, shared())
	other, notesOther := slices.Build([]card.Card{b, a}, shared())
	require.Equal(t, encode(t, one), encode(t, other))
	require.Equal(t, notesOne, notesOther)
}

func TestInputIsNotChanged(t *testing.T) {
	t.Parallel()
	cards := fleet(4, func(_ int, c *card.Card) { c.Faults = []card.Fault{{Kind: "B"}, {Kind: "A"}} })
	cards[0], cards[3] = cards[3], cards[0]
	before := fmt.Sprintf("%+v", cards)
	slices.Build(cards, shared())
	require.Equal(t, before, fmt.Sprintf("%+v", cards))
}

func anyCard(t *rapid.T) card.Card {
	texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "580.65.06", "8.6", "Ampere", "00000000:1b:00.0", strings.Repeat("é", 40)}))
	c := card.Card{
		// Few UUIDs and indices, so that twins happen.
		UUID:  card.UUID(rapid.OneOf(rapid.SampledFrom([]string{"", "GPU-a", "gpu-A", "GPU-b", "odd/one"}), texts).Draw(t, "uuid")),
		Index: rapid.IntRange(-1, 4).Draw(t, "index"), Minor: rapid.IntRange(-1, 4).Draw(t, "minor"),
		Vendor: texts.Draw(t, "vendor"), ProductName: texts.Draw(t, "product"), Architecture: texts.Draw(t, "architecture"),
		ComputeCapability: texts.Draw(t, "capability"), DriverVersion: texts.Draw(t, "driver"), CUDAVersion: texts.Draw(t, "cuda"),
		PCIBusID: texts.Draw(t, "pci"), PCIeRoot: texts.Draw(t, "root"), NUMANode: rapid.IntRange(-1, 7).Draw(t, "numa"),
		Memory:    card.MiB(rapid.Int64Range(-1, 1<<20).Draw(t, "memory")),
		WholeOnly: rapid.Bool().Draw(t, "whole"),
	}
	for range rapid.IntRange(0, 20).Draw(t, "faults") {
		c.Faults = append(c.Faults, card.Fault{
			Kind: texts.Draw(t, "kind"), Message: texts.Draw(t, "message"), Evict: rapid.Bool().Draw(t, "evict"),
		})
	}
	return c
}

// Whatever the hardware says, in whatever order, the API server takes it and a
// second publish is the same bytes.
func TestEqualCardsGiveEqualBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cards := rapid.SliceOfN(rapid.Custom(anyCard), 0, 70).Draw(t, "cards")
		o := slices.Options{NodeName: node, Slots: rapid.IntRange(-1, 64).Draw(t, "slots"), Shareable: rapid.Bool().Draw(t, "shareable")}
		got, notes := slices.Build(cards, o)
		requireAccepted(t, got)

		mixed := rapid.Permutation(cards).Draw(t, "permutation")
		for i := range mixed {
			mixed[i].Faults = shuffled(mixed[i].Faults)
		}
		again, notesAgain := slices.Build(mixed, o)
		require.Equal(t, encode(t, got), encode(t, again))
		require.Equal(t, notes, notesAgain)
	})
}

func shuffled(faults []card.Fault) []card.Fault {
	out := append([]card.Fault(nil), faults...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// The API server sends quantities back in its own notation; what comes back must
// still be equal, or every sync would write.
func TestReadBackIsEqual(t *testing.T) {
	t.Parallel()
	got, _ := slices.Build(fleet(3, func(i int, c *card.Card) { c.Memory = card.MiB(1024<<i) + card.MiB(i) }), shared())
	want := onlyPool(t, got).Slices[0].Devices
	text, err := json.Marshal(want)
	require.NoError(t, err)
	var back []resourceapi.Device
	require.NoError(t, json.Unmarshal(text, &back))
	require.True(t, resourceslice.DevicesDeepEqual(want, back))
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{8, 64} {
		b.Run(fmt.Sprintf("cards=%d", n), func(b *testing.B) {
			cards := fleet(n, nil)
			b.ReportAllocs()
			for b.Loop() {
				slices.Build(cards, shared())
			}
		})
	}
}
