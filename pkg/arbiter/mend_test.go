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
	first, second := startHelper(t), startHelper(t)
	first.ask(t, "attach", dir)
	second.ask(t, "attach", dir)
	bad := attach(t, dir)
	first.end()
	second.end()
	eventually(t, func() bool { return bad.Ledger.Slot[0].Attached.Load()+bad.Ledger.Slot[1].Attached.Load() == 0 }, "two slots are free")
	scribbled(unsafe.Slice((*byte)(unsafe.Pointer(bad.Ledger)), wire.LedgerSize), 0)
	good := attach(t, dir)
	require.Zero(t, good.Welcome.Slot)
	require.Equal(t, wire.LedgerMagic, good.Ledger.Magic)
	require.Equal(t, uint32(wire.ContractVersion), good.Ledger.Version)
	require.EqualValues(t, wire.MaxSlots, good.Ledger.Slots)
	require.EqualValues(t, 3, max(good.Ledger.SlotsUsed.Load(), good.Grant.SlotsUsed.Load()), "nobody looks at the others")
	for slot := range 2 {
		require.Zero(t, good.Ledger.Slot[slot].Committed.Load(), "slot %d is new or free", slot)
	}
}
