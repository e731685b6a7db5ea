// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/fixture"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// measured asks for a measurement that must come.
func measured(t *testing.T, c *wireclient.Client, settle uint64) wire.Reply {
	t.Helper()
	reply, err := c.Measure(settle)
	require.NoError(t, err)
	require.Equal(t, wire.OK, reply.Status)
	return reply
}

func TestAMeasurementReplacesTheEstimate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	require.True(t, c.Take(100*mib))
	c.Slot().Reserve.Store(512 * mib)
	n.usage.set(os.Getpid(), 440*mib)
	require.Equal(t, wire.Reply{Magic: wire.MessageMagic, ID: 1, Used: 440 * mib, Implicit: 340 * mib}, measured(t, c, 512*mib))
	require.EqualValues(t, 340*mib, c.Slot().Implicit.Load())
	require.Zero(t, c.Slot().Reserve.Load())
	require.EqualValues(t, 340*mib, c.Grant.ContextEstimate.Load(), "what a context takes is known now")

	n.usage.set(os.Getpid(), 0) // the context is gone
	measured(t, c, 0)
	require.EqualValues(t, 100*mib, c.Charge())
}

func TestOnlyWhatWasReservedIsSettled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	c := attach(t, n.served(t, some("a", 4096)))
	c.Slot().Reserve.Store(10 * mib)
	measured(t, c, 4*mib)
	require.EqualValues(t, 6*mib, c.Slot().Reserve.Load())
	measured(t, c, wire.NoLimit)
	require.Zero(t, c.Slot().Reserve.Load())
}

func TestSeveralSlotsOfOneProcessAreMeasuredTogether(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	first, second := n.served(t, some("a", 4096)), n.served(t, some("b", 4096))
	elsewhere := n.served(t, some("c", 4096, func(s *share.Share) { s.Card = fixture.Card(1).UUID }))
	a, again, b, other := attach(t, first), attach(t, first), attach(t, second), attach(t, elsewhere)
	require.True(t, a.Take(100*mib) && again.Take(50*mib) && b.Take(25*mib) && other.Take(1000*mib))
	n.usage.set(os.Getpid(), 400*mib)
	n.usage.setOn(fixture.Card(1).UUID, os.Getpid(), 1200*mib)
	require.EqualValues(t, 225*mib, measured(t, a, 0).Implicit)
	require.EqualValues(t, 0, measured(t, b, 0).Implicit, "the other share has it already")
	n.usage.set(os.Getpid(), 450*mib)
	require.EqualValues(t, 50*mib, measured(t, b, 0).Implicit, "what is new")
	require.EqualValues(t, 225*mib, a.Slot().Implicit.Load())
	n.usage.set(os.Getpid(), 210*mib)
	require.EqualValues(t, 35*mib, measured(t, b, 0).Implicit, "what is left is with the one that is measured")
	require.Zero(t, a.Slot().Implicit.Load())
	a.Slot().Reserve.Store(60 * mib)
	n.usage.set(os.Getpid(), 260*mib)
	require.EqualValues(t, 60*mib, measured(t, a, 60*mib).Implicit, "a context is charged to the share that had the room")
	require.EqualValues(t, 25*mib, b.Slot().Implicit.Load())
	require.EqualValues(t, 200*mib, measured(t, other, 0).Implicit, "another card is another matter")
}

func TestABusyProcessIsChargedWithTheEstimate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	c := attach(t, n.served(t, some("a", 4096)))
	c.Slot().Inflight.Store(1) // a call that does not end
	c.Slot().Committed.Store(1000 * mib)
	c.Slot().Reserve.Store(512 * mib)
	n.usage.set(os.Getpid(), 300*mib)
	require.EqualValues(t, 512*mib, measured(t, c, 512*mib).Implicit, "it is not known what of the rest the call will take")
	require.EqualValues(t, 1512*mib, c.Charge())
	c.Slot().Inflight.Store(0)
	n.usage.set(os.Getpid(), 1300*mib)
	require.EqualValues(t, 300*mib, measured(t, c, 0).Implicit)
}

func TestAChangeDuringTheReadingIsNotMissed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	c := attach(t, n.served(t, some("a", 4096)))
	n.usage.set(os.Getpid(), 300*mib)
	n.usage.intervene(func() { // once, after the look before the reading
		n.usage.intervene(nil)
		c.Take(100 * mib)
		n.usage.set(os.Getpid(), 400*mib)
	})
	require.EqualValues(t, 300*mib, measured(t, c, 0).Implicit)
}

func TestACardThatCannotBeMeasuredChangesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	c := attach(t, n.served(t, some("a", 4096)))
	c.Slot().Reserve.Store(512 * mib)
	n.usage.fail(errors.New("the card fell off"))
	reply, err := c.Measure(512 * mib)
	require.NoError(t, err)
	require.Equal(t, wire.EMeasure, reply.Status)
	require.EqualValues(t, 512*mib, c.Charge())
	n.usage.fail(nil)
	measured(t, c, 512*mib)
	require.Zero(t, c.Charge())
}

func TestExportedMemoryIsChargedBeforeItsMakerGivesItUp(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	maker, importer := attach(t, dir), startHelper(t)
	importer.ask(t, "attach", dir)
	maker.Slot().Implicit.Store(500 * mib)
	n.usage.set(os.Getpid(), 0)
	n.usage.set(importer.pid(), 500*mib)
	_, err := maker.Conn.Write(wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: wire.OpMeasureAll, ID: 9}))
	require.NoError(t, err)
	answer := make([]byte, 64)
	count, err := maker.Conn.Read(answer)
	require.NoError(t, err)
	reply, err := wire.Decode[wire.Reply](answer[:count])
	require.NoError(t, err)
	require.Equal(t, wire.Reply{Magic: wire.MessageMagic, ID: 9}, reply)
	require.EqualValues(t, 500*mib, maker.Ledger.Slot[1].Implicit.Load())
	n.usage.set(importer.pid(), 0)
	_, err = maker.Conn.Write(wire.Encode(wire.Request{Magic: wire.MessageMagic, Op: wire.OpMeasureAll}))
	require.NoError(t, err)
	_, err = maker.Conn.Read(answer)
	require.NoError(t, err)
	require.EqualValues(t, 500*mib, maker.Ledger.Slot[1].Implicit.Load(), "others are never charged with less")
}

func TestAProcessWithACallInFlightIsChargedForWhatItImportedAtMost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	c.Slot().Inflight.Store(1)
	c.Slot().Committed.Store(100 * mib)
	n.usage.set(os.Getpid(), 600*mib)
	// The arbiter waits for a quiet moment, and not for long: on a machine that is slow a
	// death may pass without one.
	for deaths := 0; c.Slot().Implicit.Load() == 0 && deaths < 50; deaths++ {
		maker := startHelper(t)
		maker.ask(t, "attach", dir)
		maker.end()
		eventually(t, func() bool { return c.Ledger.Slot[1].Attached.Load() == 0 }, "the maker's slot is free")
	}
	require.EqualValues(t, 500*mib, c.Slot().Implicit.Load())
}

func TestWhatAContextTakesIsLearntByEachShareForItself(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dirs := map[string]string{}
	for _, name := range []string{"modest", "greedy", "new"} {
		dirs[name] = n.served(t, some(name, 16384))
	}
	context := func(name string, bytes uint64) *wireclient.Client {
		h, c := startHelper(t), connect(t, dirs[name], wireclient.Hello(wire.RoleObserver))
		h.ask(t, "attach", dirs[name])
		n.usage.set(h.pid(), bytes)
		h.ask(t, "measure", 0)
		return c
	}
	fresh := connect(t, dirs["new"], wireclient.Hello(wire.RoleObserver))
	require.EqualValues(t, contextBytes, fresh.Grant.ContextEstimate.Load())
	modest := context("modest", 301*mib)
	require.EqualValues(t, 302*mib, modest.Grant.ContextEstimate.Load(), "in whole frames")
	require.EqualValues(t, 302*mib, fresh.Grant.ContextEstimate.Load(), "what is usual on the card")
	greedy := context("greedy", 8192*mib)
	require.EqualValues(t, 8192*mib, greedy.Grant.ContextEstimate.Load())
	require.EqualValues(t, 302*mib, fresh.Grant.ContextEstimate.Load(), "one share alone says nothing about the others")
	require.EqualValues(t, 302*mib, modest.Grant.ContextEstimate.Load())
	context("modest", 100*mib)
	require.EqualValues(t, 302*mib, modest.Grant.ContextEstimate.Load(), "never less than the largest of late")
	late := connect(t, n.served(t, some("late", 1024)), wireclient.Hello(wire.RoleObserver))
	require.EqualValues(t, 302*mib, late.Grant.ContextEstimate.Load(), "a share that comes later")
}
