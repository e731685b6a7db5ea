// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/fixture"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// exporter starts a process that holds some memory, and has exported some.
func exporter(t *testing.T, dir string, holds, exported uint64) *helper {
	t.Helper()
	h := startHelper(t)
	require.Regexp(t, "^slot [0-9]+ ok$", h.ask(t, "attach", dir))
	require.Equal(t, "true", h.ask(t, "take", holds))
	require.Equal(t, "exported", h.ask(t, "export", exported))
	return h
}

func observe(t *testing.T, dir string) *wireclient.Client {
	t.Helper()
	return connect(t, dir, wireclient.Hello(wire.RoleObserver))
}

// taken is how many slots are not free, and how many of them have no process.
func taken(c *wireclient.Client) (all, kept int) {
	for i := range c.Ledger.Slot {
		if s := &c.Ledger.Slot[i]; s.Attached.Load() != 0 {
			all++
			if s.HostPID.Load() == 0 {
				kept++
			}
		}
	}
	return all, kept
}

func TestWhatDescriptorsMayKeepOfTheDeadStaysCharged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		holds, exported, keeps, want uint64
	}{
		"nothing was exported":                            {300, 0, 300, 0},
		"all was exported, and a descriptor is left":      {300, 300, 300, 300},
		"part was exported":                               {300, 100, 100, 100},
		"no descriptor is left":                           {300, 300, 0, 0},
		"less is left than was exported":                  {300, 300, 200, 200},
		"others keep more on the card":                    {300, 300, 1000, 300},
		"it claims to have exported more than it held":    {300, 1 << 40, 1000, 300},
		"it claims to have exported more than a card has": {300, 1 << 43, 4000, 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.start(t)
			dir := n.served(t, some("a", 4096))
			h := exporter(t, dir, tc.holds*mib, tc.exported*mib)
			o := observe(t, dir)
			n.usage.keep(tc.keeps * mib)
			h.end()
			eventually(t, func() bool { return o.Ledger.Slot[0].HostPID.Load() == 0 }, "its end is noticed")
			eventually(t, func() bool { return o.Charge() == tc.want*mib }, "%d are charged", tc.want)
			_, kept := taken(o)
			require.Equal(t, tc.want > 0, kept == 1)
		})
	}
}

func TestWhatIsKeptOfManyTakesOneSlot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	o := observe(t, dir)
	const each = 100
	n.usage.keep(8 * each * mib)
	var all []*helper
	for range 8 {
		all = append(all, exporter(t, dir, each*mib, each*mib))
	}
	for i, h := range all {
		h.end()
		eventually(t, func() bool { slots, kept := taken(o); return slots == len(all)-i && kept == 1 || i == len(all)-1 }, "%d have ended", i+1)
		require.EqualValues(t, 8*each*mib, o.Charge(), "at no time is it less")
	}
	c := attach(t, dir)
	require.False(t, c.Take(4096*mib-8*each*mib+1), "it is the share's")
	n.usage.keep(each * mib)
	eventually(t, func() bool { return c.Charge() == each*mib }, "descriptors are closed")
	n.usage.keep(0)
	eventually(t, func() bool { slots, kept := taken(o); return slots == 1 && kept == 0 && c.Charge() == 0 }, "the last one is closed")
}

// Its maker has ended, the share is charged with it, and another process is attached.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		keeps  uint64
		fails  error // of the look at what the card keeps
		idle   bool  // the watchdog hardly ever looks
		follow func(t *testing.T, n *node, c *wireclient.Client)
	}{
		"passes to who imports it": {keeps: 300, follow: func(t *testing.T, n *node, c *wireclient.Client) {
			c.Slot().Exported.Store(wire.NoLimit)
			n.usage.set(os.Getpid(), 300*mib)
			n.usage.keep(0)
			_, err := c.MeasureAll(0)
			require.NoError(t, err)
			require.EqualValues(t, 300*mib, c.Slot().Implicit.Load())
			require.EqualValues(t, 300*mib, c.Charge(), "not twice")
		}},
		"is free, once it is not kept any more, for who needs room and asks": {keeps: 300, idle: true, follow: func(t *testing.T, n *node, c *wireclient.Client) {
			require.False(t, c.Take(300*mib))
			n.usage.keep(0)
			require.False(t, c.Take(300*mib))
			_, err := c.MeasureAll(0)
			require.NoError(t, err)
			require.True(t, c.Take(300*mib))
		}},
		"stays while it cannot be read, although nothing may be left": {
			fails:  os.ErrDeadlineExceeded,
			follow: func(*testing.T, *node, *wireclient.Client) {},
		},
		"is not the tenant's to change": {keeps: 300, follow: func(t *testing.T, _ *node, c *wireclient.Client) {
			for i := range c.Ledger.Slot {
				c.Ledger.Slot[i].Clear()
			}
			eventually(t, func() bool { return c.Charge() == 300*mib }, "it is written anew")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if !tc.idle {
				n.watch(arbiter.ActionEvent)
			}
			n.start(t)
			dir := n.served(t, some("a", 512))
			h := exporter(t, dir, 300*mib, 300*mib)
			n.usage.keep(tc.keeps * mib)
			n.usage.fail(tc.fails)
			h.end()
			c := attach(t, dir)
			eventually(t, func() bool { _, kept := taken(c); return kept == 1 }, "its end is noticed")
			require.EqualValues(t, 300*mib, c.Charge())
			tc.follow(t, n, c)
		})
	}
}

func TestAProgramThatExecutesAnotherLeavesWhatDescriptorsKeep(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	h := exporter(t, dir, 300*mib, 300*mib)
	n.usage.keep(300 * mib)
	require.Equal(t, "executed", h.ask(t, "exec"))
	require.Regexp(t, "^slot [0-9]+ ok$", h.ask(t, "attach", dir))
	o := observe(t, dir)
	eventually(t, func() bool { _, kept := taken(o); return kept == 1 }, "the first program is no more")
	require.EqualValues(t, 300*mib, o.Charge())
}

func TestWhatALivingProcessGaveUpAndACardHoldsForNobodyIsKept(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	c.Slot().Reserve.Store(300 * mib)
	c.Slot().Exported.Store(300 * mib)
	n.usage.keep(200 * mib)
	_, err := c.MeasureAll(300 * mib)
	require.NoError(t, err)
	require.Zero(t, c.Slot().Reserve.Load())
	require.EqualValues(t, 200*mib, c.Charge())
}

func TestSharesOfACardKeepTheirOwn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	n.start(t)
	a, b := n.served(t, some("a", 4096)), n.served(t, some("b", 4096))
	one, other := exporter(t, a, 300*mib, 300*mib), exporter(t, b, 100*mib, 100*mib)
	bystander := exporter(t, b, 500*mib, 0)
	n.usage.keep(400 * mib)
	for _, h := range []*helper{one, other, bystander} {
		h.end()
	}
	oa, ob := observe(t, a), observe(t, b)
	eventually(t, func() bool { return oa.Charge() == 300*mib && ob.Charge() == 100*mib }, "each is charged with its own")
	n.usage.keep(50 * mib)
	eventually(t, func() bool { return oa.Charge() == 50*mib && ob.Charge() == 50*mib }, "what is left may be either's")
}

func TestAnotherCardKeepsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent) // which looks again where the machine was too busy
	n.start(t)
	elsewhere := some("a", 4096, func(s *share.Share) {
		c := fixture.Card(1)
		s.Card, s.ID.Device = c.UUID, c.DeviceName()
	})
	dir := n.served(t, elsewhere)
	o := observe(t, dir)
	n.usage.keep(300 * mib)
	h := exporter(t, dir, 300*mib, 300*mib)
	h.end()
	eventually(t, func() bool { slots, _ := taken(o); return slots == 0 && o.Charge() == 0 }, "it is free")
}

func TestWhatIsKeptOutlivesTheArbiter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		survivor bool // has the ledger
		before   bool // the exporter ends while the first arbiter serves
		deny     bool // the next arbiter cannot look into processes
		keeps    uint64
		want     uint64
	}{
		"in the ledger of a process":                                 {survivor: true, before: true, keeps: 300, want: 300},
		"in the roster, with nobody left who has the ledger":         {before: true, keeps: 300, want: 300},
		"of who ended while nobody served, in the ledger":            {survivor: true, keeps: 300, want: 300},
		"of who ended while nobody served, with the ledger":          {keeps: 300, want: 300},
		"of whom nothing is left":                                    {keeps: 0, want: 0},
		"in the roster, where the ledger cannot be found":            {survivor: true, before: true, deny: true, keeps: 300, want: 300},
		"of who ended while nobody served, where it cannot be found": {survivor: true, deny: true, keeps: 300, want: 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if tc.deny {
				n.deny()
			}
			first := n.start(t)
			dir := n.served(t, some("a", card.MiB(4096)))
			h := exporter(t, dir, 300*mib, 300*mib)
			n.usage.keep(tc.keeps * mib)
			var survivor *helper
			if tc.survivor {
				survivor = exporter(t, dir, 10*mib, 0)
				tc.want += 10
			}
			if tc.before {
				o := observe(t, dir)
				h.end()
				eventually(t, func() bool { _, kept := taken(o); return kept == 1 }, "its end is noticed")
			}
			first.stop()
			h.end()
			n.watch(arbiter.ActionEvent)
			n.start(t)
			if survivor != nil {
				require.Regexp(t, "^slot [0-9]+ (ok|moved)$", survivor.ask(t, "again", dir))
			}
			c := attach(t, dir)
			eventually(t, func() bool { return c.Charge() == tc.want*mib }, "%d are charged", tc.want)
			_, kept := taken(c)
			require.Equal(t, tc.keeps > 0, kept == 1)
			require.NotZero(t, c.Slot().HostPID.Load(), fmt.Sprint("its slot is its own: ", c.Welcome.Slot))
		})
	}
}
