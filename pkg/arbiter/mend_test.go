// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/wire"
)

func TestALedgerIsMendedForTheNextProcess(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	bad := attach(t, dir)
	scribbled(unsafe.Slice((*byte)(unsafe.Pointer(bad.Ledger)), wire.LedgerSize), 1)
	good := attach(t, dir)
	require.Equal(t, wire.LedgerMagic, good.Ledger.Magic)
	require.Equal(t, uint32(wire.ContractVersion), good.Ledger.Version)
	require.EqualValues(t, wire.MaxSlots, good.Ledger.Slots)
	for i := range good.Ledger.Slot {
		if uint32(i) != bad.Welcome.Slot && uint32(i) != good.Welcome.Slot {
			require.Zero(t, good.Ledger.Slot[i].Committed.Load(), "slot %d is nobody's", i)
		}
	}
	require.Zero(t, good.Ledger.Slot[good.Welcome.Slot].Committed.Load())
}
