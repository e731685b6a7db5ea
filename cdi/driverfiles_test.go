// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
)

// named is a source of driver files that can be told from others.
type named string

func (n named) Device(context.Context, card.Card) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{Env: []string{"DEVICE=" + string(n)}}, nil
}

func (n named) Common(context.Context, []card.Card, Runtime) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{Env: []string{"COMMON=" + string(n)}}, nil
}

func TestDriversByCard(t *testing.T) {
	t.Parallel()
	nvidia := card.Card{UUID: "GPU-1", Vendor: card.VendorNVIDIA}
	simulated := card.Card{UUID: "GPU-2", Vendor: card.VendorNVIDIA, Simulated: true}
	both := Drivers{NVIDIA: named("nvidia"), Simulated: named("simulated")}
	for _, row := range []struct {
		name    string
		drivers Drivers
		cards   []card.Card
		want    string
		says    string
	}{
		{"an NVIDIA card", both, []card.Card{nvidia}, "nvidia", ""},
		{"a simulated NVIDIA card", both, []card.Card{simulated, simulated}, "simulated", ""},
		{"an NVIDIA card on a node of simulated ones", Drivers{Simulated: named("simulated")}, []card.Card{nvidia}, "", "GPU-1: cards of driver \"nvidia\" are not supported yet"},
		{"an AMD card", both, []card.Card{{UUID: "a", Vendor: card.VendorAMD}}, "", "not supported yet"},
		{"an Intel card", both, []card.Card{{UUID: "i", Vendor: card.VendorIntel}}, "", "not supported yet"},
		{"a card of an unknown vendor", both, []card.Card{{UUID: "u"}}, "", `driver "unknown"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			device, errDevice := row.drivers.Device(t.Context(), row.cards[0])
			common, errCommon := row.drivers.Common(t.Context(), row.cards, Runtime{})
			if row.says != "" {
				for _, err := range []error{errDevice, errCommon} {
					require.ErrorIs(t, err, ErrUnsupported)
					require.ErrorContains(t, err, row.says)
				}
				return
			}
			require.NoError(t, errors.Join(errDevice, errCommon))
			require.Equal(t, []string{"DEVICE=" + row.want}, device.Env)
			require.Equal(t, []string{"COMMON=" + row.want}, common.Env)
		})
	}
	_, err := both.Common(t.Context(), []card.Card{nvidia, simulated}, Runtime{})
	require.ErrorContains(t, err, "separate claims")
	_, err = both.Common(t.Context(), nil, Runtime{})
	require.ErrorContains(t, err, "no cards")
}

func TestASimulatedCardIsMadeAndMounted(t *testing.T) {
	t.Parallel()
	var made []card.UUID
	source := NewSimulatedDriver("/run/tranche/cards", func(dir string, c card.Card) (string, error) {
		made = append(made, c.UUID)
		return dir + "/" + string(c.UUID), nil
	})
	edits, err := source.Device(t.Context(), cardA)
	require.NoError(t, err)
	dir := "/run/tranche/cards/" + string(cardA.UUID)
	require.Equal(t, []card.UUID{cardA.UUID}, made)
	require.Equal(t, &specs.ContainerEdits{Mounts: []*specs.Mount{{
		HostPath: dir, ContainerPath: "/run/tranche/cards/" + string(cardA.UUID), Options: []string{"rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
	}}}, edits)
}

func TestSimulatedCardsThatAreNotMade(t *testing.T) {
	t.Parallel()
	errFull := errors.New("no space left on device")
	with := func(change func(*card.Card)) card.Card {
		c := cardA
		change(&c)
		return c
	}
	for _, row := range []struct {
		name string
		card card.Card
		says string
	}{
		{"a card that cannot be made", cardA, "make simulated card " + string(cardA.UUID) + ": no space left on device"},
		{"a card of another vendor, which CUDA does not know", with(func(c *card.Card) { c.Vendor = card.VendorAMD }), ""},
		{"a card whose memory is unknown, which nobody can simulate", with(func(c *card.Card) { c.Memory = 0 }), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			edits, err := NewSimulatedDriver("/cards", func(string, card.Card) (string, error) { return "", errFull }).Device(t.Context(), row.card)
			require.Nil(t, edits)
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.says)
		})
	}
}
