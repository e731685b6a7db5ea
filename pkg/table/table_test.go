// SPDX-License-Identifier: Apache-2.0

package table_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/table"
)

func TestColumnsAreAlignedAndLinesEndWithoutBlanks(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, table.Write(&out, [][]string{{"CARD", "MODEL", "PIDS"}, {"0", "A", ""}, {"10", table.OrNothing(""), "7"}}))
	require.Equal(t, "CARD  MODEL  PIDS\n0     A\n10    -      7\n", out.String())
}

func TestAmountsReadAsInClaims(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"24Gi", "81559Mi", "0"}, []string{table.Memory(24 << 10), table.Memory(81559), table.Memory(0)})
}

type full struct{}

var errFull = errors.New("disk full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, table.Write(full{}, [][]string{{"CARD"}}), errFull)
	require.ErrorIs(t, table.WriteJSON(full{}, 1), errFull)
}
