// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

func TestEveryWayToLaunchWorksAndCapturesAreNotBroken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain", "oldest", "graphs", "capture-undisturbed", "capture-beside", "between", "tiny-and-long"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 256)
			lines := run(t, p.box, "launches", name)
			require.Equal(t, "ok", lines[len(lines)-1].Word)
			p.gone(t)
		})
	}
}

// Functions that a driver newer than the runtime has, and names that
// nobody has.
func TestFunctionsOfANewerDriverPassThrough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{Profile: 580})
	s := newShare(t, r, c, 256)
	box := newBox(t, r, s)
	// What each is to be is not written here twice: hooks are ours, the rest is the driver's.
	for name, row := range map[string]struct{ symbol, dlsym, entry string }{
		"a function of the newest driver that nothing is to be done about": {"cuLogsRegisterCallback", "same", "same"},
		"another of them":                         {"cuStreamGetDevice", "same", "same"},
		"one that every driver has":               {"cuEventCreate", "same", "same"},
		"one that allocates":                      {"cuMemAlloc", "ours", "ours"},
		"one of CUDA 13 that waits":               {"cuCtxSynchronize_v2", "ours", "missing"},
		"a table that is handed through":          {"cuGetExportTable", "same", "same"},
		"a name that no driver has":               {"cuNobodyHasThis", "missing", "missing"},
		"the function that answers these queries": {"cuGetProcAddress_v2", "ours", "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := run(t, box, "symbols", "libcuda.so.1", "libcuda-real.so.1", row.symbol)
			require.Equal(t, fmt.Sprintf("%s dlsym=%s entry=%s", row.symbol, row.dlsym, row.entry), lines[0].Text)
		})
	}
}

func TestEveryProfileOfTheDriverIsLimited(t *testing.T) {
	t.Parallel()
	for _, profile := range []int{470, 535, 550, 580} {
		t.Run(strconv.Itoa(profile), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := newCard(t, r, simcard.Config{Profile: profile})
			s := newShare(t, r, c, 256)
			p := tenant(t, newBox(t, r, s), 0)
			require.Equal(t, s.Limit, amount(t, ask(t, p, "info", success), "total"))
			fillUp(t, p, "alloc", 16*rig.MiB)
			held, err := r.Settled(s)
			require.NoError(t, err)
			require.LessOrEqual(t, held, s.Limit)
			require.Greater(t, held, s.Limit-32*rig.MiB)
		})
	}
}
