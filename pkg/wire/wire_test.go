// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/wire"
)

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	welcome := wire.Welcome{
		Magic: wire.MessageMagic, Version: 1, Status: wire.EDenied, Slot: 7, Nonce: 1 << 63, HostPID: -5, Reason: wire.Reason("no"),
	}
	got, err := wire.Decode[wire.Welcome](wire.Encode(welcome))
	require.NoError(t, err)
	require.Equal(t, welcome, got)
	require.Equal(t, "no", wire.Text(got.Reason[:]))
}

func TestAReasonAlwaysEnds(t *testing.T) {
	t.Parallel()
	field := wire.Reason(strings.Repeat("x", 500))
	require.Len(t, wire.Text(field[:]), wire.ReasonSize-1)
	require.Equal(t, "abc", wire.Text([]byte("abc")), "also one without an end")
	require.Empty(t, wire.Text(nil))
}

func TestNamesOfNumbers(t *testing.T) {
	t.Parallel()
	for _, s := range []wire.Status{wire.OK, wire.Moved, wire.EVersion, wire.EEnded, wire.EFull, wire.EInvalid, wire.EMeasure, wire.EDenied} {
		require.NotContains(t, s.String(), "status")
	}
	require.Equal(t, "status -99", wire.Status(-99).String())
	for _, r := range []wire.Role{wire.RoleProbe, wire.RoleProcess, wire.RoleObserver, wire.RoleAgain} {
		require.NotContains(t, r.String(), "role")
	}
	require.Equal(t, "role 4294967295", wire.Role(0xffffffff).String())
}

func TestAPageNeedsItsRoom(t *testing.T) {
	t.Parallel()
	_, err := wire.In[wire.Ledger](make([]byte, wire.LedgerSize-1))
	require.EqualError(t, err, "find page in memory: 69631 bytes are fewer than 69632")
	page, err := wire.In[wire.Ledger](make([]byte, wire.LedgerSize))
	require.NoError(t, err)
	require.Zero(t, page.Charge(wire.MaxSlots))
}

func TestACharge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fill func(*wire.Ledger)
		used uint32
		want uint64
	}{
		"all four amounts of all slots in use": {func(l *wire.Ledger) {
			for i := range 3 {
				s := &l.Slot[i]
				s.Pending.Store(1)
				s.Committed.Store(10)
				s.Reserve.Store(100)
				s.Implicit.Store(1000)
			}
		}, 2, 2222},
		"more slots than there are":       {func(l *wire.Ledger) { l.Slot[wire.MaxSlots-1].Committed.Store(5) }, 1 << 31, 5},
		"amounts that no card could have": {func(l *wire.Ledger) { l.Slot[0].Committed.Store(wire.NoLimit); l.Slot[1].Implicit.Store(2) }, 2, wire.NoLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &wire.Ledger{}
			tc.fill(l)
			require.Equal(t, tc.want, l.Charge(tc.used))
		})
	}
}

func TestAClearedSlotIsZero(t *testing.T) {
	t.Parallel()
	memory := make([]byte, wire.LedgerSize)
	for i := range memory {
		memory[i] = 0xff
	}
	l, err := wire.In[wire.Ledger](memory)
	require.NoError(t, err)
	l.Slot[1].Clear()
	const at = wire.PageSize + 64
	require.Equal(t, make([]byte, 64), memory[at:at+64])
	require.EqualValues(t, 0xff, memory[at-1])
	require.EqualValues(t, 0xff, memory[at+64])
}

func FuzzMessages(f *testing.F) {
	f.Add(wire.Encode(wire.Hello{Magic: wire.MessageMagic, Version: 1}))
	f.Add(wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: wire.OpMeasure}))
	f.Add(wire.Encode(wire.Welcome{Magic: wire.MessageMagic}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		same(t, data, wire.Decode[wire.Hello], wire.Encode[wire.Hello])
		same(t, data, wire.Decode[wire.Welcome], wire.Encode[wire.Welcome])
		same(t, data, wire.Decode[wire.Request], wire.Encode[wire.Request])
		same(t, data, wire.Decode[wire.Reply], wire.Encode[wire.Reply])
		if version, ok := wire.HelloVersion(data); ok {
			hello, err := wire.Decode[wire.Hello](data)
			require.True(t, err != nil || hello.Version == version)
		}
	})
}

// same checks that what is understood is written as it was read.
func same[M wire.Message](t *testing.T, data []byte, decode func([]byte) (M, error), encode func(M) []byte) {
	t.Helper()
	if m, err := decode(data); err == nil {
		require.Equal(t, data, encode(m))
	}
}
