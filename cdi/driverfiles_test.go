// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/durable"
)

// named is a source of driver files that can be told from others.
type named string

func (n named) Device(context.Context, card.Card) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{Env: []string{"DEVICE=" + string(n)}}, nil
}

func (n named) Common(context.Context, []card.Card) (*specs.ContainerEdits, error) {
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
			common, errCommon := row.drivers.Common(t.Context(), row.cards)
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
	_, err := both.Common(t.Context(), []card.Card{nvidia, simulated})
	require.ErrorContains(t, err, "separate claims")
	_, err = both.Common(t.Context(), nil)
	require.ErrorContains(t, err, "no cards")
}

func TestSimulatedDriver(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "simdriver")
	source := NewSimulatedDriver(dir, durable.Files{})
	device, err := source.Device(t.Context(), cardA)
	require.NoError(t, err)
	require.Nil(t, device)
	require.NoDirExists(t, dir, "made when it is needed")

	for range 2 {
		common, err := source.Common(t.Context(), []card.Card{cardA})
		require.NoError(t, err)
		require.DirExists(t, dir)
		require.Equal(t, &specs.ContainerEdits{Mounts: []*specs.Mount{{
			HostPath: dir, ContainerPath: "/run/tranche/driver", Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"},
		}}}, common)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "libcuda.so.1"), nil, 0o600), "what is in it stays")
	}
	require.FileExists(t, filepath.Join(dir, "libcuda.so.1"))

	_, err = NewSimulatedDriver("/proc/no/such/place", durable.Files{}).Common(t.Context(), nil)
	require.ErrorContains(t, err, "offer the simulated driver: make directory /proc/no/such/place")
}
