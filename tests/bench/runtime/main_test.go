// SPDX-License-Identifier: Apache-2.0

//go:build native

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// The benchmark itself takes minutes. What it does works, whatever figures come out.
func TestEverythingThatIsMeasuredCanBe(t *testing.T) {
	t.Parallel()
	if err := sandbox.Usable(); err != nil {
		t.Skipf("%v: run it as root", err)
	}
	if rig.Flavour() != "release" {
		t.Skip("only the release build is measured")
	}
	p, err := newPlace()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.rig.Close()) })
	for name, box := range map[string]*sandbox.Box{
		"on the simulated driver, with the runtime": p.simulated.ours, "on the simulated driver": p.simulated.bare,
		"on the driver that does nothing, with the runtime": p.hollow.ours, "on the driver that does nothing": p.hollow.bare,
	} {
		t.Run("calls "+name, func(t *testing.T) {
			t.Parallel()
			lines, err := rig.Run(t.Context(), box, rig.Client("measure"))
			require.NoError(t, err)
			got := map[string][2][]float64{}
			require.NoError(t, collect(got, lines))
			for _, f := range figures() {
				require.Contains(t, got, f.name)
			}
		})
	}
	t.Run("starts and deaths", func(t *testing.T) {
		t.Parallel()
		for _, command := range []string{"stranger", "begin nothing", "begin init", "begin context"} {
			words := strings.Fields(command)
			words[0] = rig.Client(words[0])
			lines, err := rig.Run(t.Context(), p.simulated.ours, rig.Client("starts"), append([]string{"1", "1"}, words...)...)
			require.NoError(t, err, command)
			_, ok := lines[len(lines)-1].Number("p50_ns")
			require.True(t, ok, "%s: %s", command, lines[len(lines)-1].Text)
		}
		other, err := p.rig.Share(p.share.Card, 4096) // which nobody else uses at the same time
		require.NoError(t, err)
		require.NoError(t, p.rig.Served(other))
		alone := p
		alone.share = other
		alone.simulated.ours, err = p.rig.Box(rig.BoxOptions{}, other)
		require.NoError(t, err)
		ledger, err := rig.OpenLedger(t.Context(), other)
		require.NoError(t, err)
		defer ledger.Close() //nolint:errcheck // only looked at
		_, err = alone.killOne(ledger)
		require.NoError(t, err)
	})
}
