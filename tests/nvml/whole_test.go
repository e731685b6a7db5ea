// SPDX-License-Identifier: Apache-2.0

//go:build native

package nvml_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// A program takes memory through CUDA; NVML in its container says the same as
// the card itself.
func TestNVMLAgreesWithTheCard(t *testing.T) {
	t.Parallel()
	if err := sandbox.Usable(); err != nil {
		t.Skip(err)
	}
	r, err := rig.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	on, err := r.Card(simcard.Config{})
	require.NoError(t, err)
	mine, err := r.Share(on, 1024)
	require.NoError(t, err)
	other, err := r.Share(on, 2048)
	require.NoError(t, err)
	_, err = r.StartArbiter()
	require.NoError(t, err)
	require.NoError(t, r.Served(mine, other))
	box, err := r.Box(rig.BoxOptions{}, mine)
	require.NoError(t, err)
	foreign, err := r.Box(rig.BoxOptions{}, other)
	require.NoError(t, err)

	var pid string
	for _, b := range []*sandbox.Box{box, foreign} {
		tenant, err := rig.Start(b, exec.Command(rig.Client("tenant")))
		require.NoError(t, err)
		for _, line := range []string{"init", "context 0", "take alloc 100000000"} {
			answer, err := tenant.Ask(line)
			require.NoError(t, err)
			require.Equal(t, "0", answer.Values["result"], answer.Text)
		}
		if b == box {
			answer, err := tenant.Ask("pid")
			require.NoError(t, err)
			pid = answer.Values["pid"]
			require.NotEmpty(t, pid, answer.Text)
		}
	}
	held, err := r.Settled(mine)
	require.NoError(t, err)
	require.Greater(t, held, 100*mib)

	smi := exec.Command(rig.Client("tranche-smi"))
	var out bytes.Buffer
	smi.Stdout, smi.Stderr = &out, &out
	require.NoError(t, box.Run(smi), &out)
	require.Contains(t, out.String(), fmt.Sprintf("memory       %d MiB used, %d MiB free, 1024 MiB total\n", held/mib, 1024-held/mib))
	require.Regexp(t, fmt.Sprintf(`processes    1\n +%s +%d MiB  /run/programs/tenant\n$`, pid, held/mib), out.String())
}
