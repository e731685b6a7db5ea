// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsReadAndWrittenOnlyWhereTheDriverDoesIt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"enumerate", "launch-many", "before-init", "no-card"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 256)
			lines := run(t, p.box, "senseless", name)
			require.Equal(t, "ok", lines[len(lines)-1].Word)
		})
	}
}

func TestKernelsInGraphsLoadNothingWithoutRoom(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	lines := run(t, p.box, "senseless", "graph-lazy")
	require.Equal(t, "ok", lines[len(lines)-1].Word)
}
