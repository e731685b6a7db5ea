// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// Programs take an arbiter for gone after the one time, and give it up after the other.
const (
	beatOld = wire.BeatLost + 200*time.Millisecond
	givenUp = 5*time.Second + 200*time.Millisecond
)

// answers tells whether a launch has that result.
func answers(p *rig.Program, result int) func() (bool, error) {
	return func() (bool, error) {
		answer, err := p.Ask("launch 1000")
		return answer.Values["result"] == strconv.Itoa(result), err
	}
}

// standsStill has the arbiter stand still until a launch goes without it, by the turns of those who have none. There
// are no more turns from then on.
func (g gated) standsStill(t *testing.T, p *rig.Program) {
	t.Helper()
	const always = 100 * time.Millisecond
	g.timetable(always, 0, always)
	g.setBeats(false)
	ask(t, p, "launch 1000", success)
	g.timetable(0, 0, 0)
}

// open is what the arbiter does when it opens the lease. It need not beat again while nobody waits.
func (g gated) open() {
	g.grant.at.Beat.Store(uint64(clock()))
	g.set(wire.LeaseOpen)
}

// isQuiet waits until the program wants nothing, and gives what tells whether it has rung since.
func (g gated) isQuiet(t *testing.T, p *rig.Program) (rung func() bool) {
	t.Helper()
	until(t, "the program to want nothing", func() bool { return g.last().Wants.Load() == 0 })
	sleepsOn(t, p.PID, warden, mapped(t, p.PID, g.grant.file)+uint64(unsafe.Offsetof(g.grant.at.Lease)))
	heard := g.ledger.at.Bell.Load()
	return func() bool { return g.ledger.at.Bell.Load() != heard }
}

// stoppedWhile stops the program while a launch waits, has something done, and gives the launch's answer.
func (g gated) stoppedWhile(t *testing.T, p *rig.Program, do func()) rig.Line {
	t.Helper()
	require.NoError(t, p.Say("launch 1000"))
	until(t, "the launch to wait", func() bool { d := g.last(); return d.Waiting.Load() == 1 && d.Wants.Load() == 1 })
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	do()
	require.NoError(t, p.Signal(syscall.SIGCONT))
	answer, err := p.Line()
	require.NoError(t, err)
	return answer
}

func TestAnArbiterThatStoodStillIsThereAgainWhen(t *testing.T) {
	t.Parallel()
	for name, launch := range map[string]func(t *testing.T, g gated, p *rig.Program) rig.Line{
		"it has opened the lease, and nobody has waited since": func(t *testing.T, g gated, p *rig.Program) rig.Line {
			g.open()
			<-time.After(beatOld)
			return ask(t, p, "launch 1000", success)
		},
		"nobody has waited for long": func(t *testing.T, g gated, p *rig.Program) rig.Line {
			rung := g.isQuiet(t, p)
			<-time.After(givenUp)
			require.NoError(t, p.Say("launch 1000"))
			until(t, "the bell", rung)
			g.open()
			answer, err := p.Line()
			require.NoError(t, err)
			return answer
		},
		"launches were refused": func(t *testing.T, g gated, p *rig.Program) rig.Line {
			ask(t, p, "launch 1000", systemNotReady)
			rung := g.isQuiet(t, p)
			ask(t, p, "launch 1000", systemNotReady)
			until(t, "the bell", rung)
			g.open()
			return ask(t, p, "launch 1000", success)
		},
		"the program was stopped for long, and the arbiter replaced": func(t *testing.T, g gated, p *rig.Program) rig.Line {
			return g.stoppedWhile(t, p, func() {
				g.replace()
				g.setBeats(true)
				g.open()
				<-time.After(givenUp)
			})
		},
		"another one opened the lease a while ago": func(t *testing.T, g gated, p *rig.Program) rig.Line {
			return g.stoppedWhile(t, p, func() {
				g.replace()
				g.open()
				<-time.After(beatOld)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			p := tenant(t, g.box, 0)
			g.standsStill(t, p)
			require.Equal(t, "0", launch(t, g, p).Values["result"], p.Complaints())
		})
	}
}

// Nobody wants anything of it when it goes on.
func TestAnArbiterThatWasStoppedForASecondIsThereAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	s := changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = share.GuaranteedBurst, 50 })
	rival := newSharer(t, r, c, share.GuaranteedBurst, 50)
	p := tenant(t, newBox(t, r, s), 0)
	ask(t, p, "launch 1000", success)
	until(t, "the program to want nothing", func() bool { return !told(t, r, s.Key).Wants })
	require.NoError(t, r.Arbiter().Signal(syscall.SIGSTOP))
	ask(t, p, "launch 1000", success)
	rival.end(t)
	require.NoError(t, r.Arbiter().Signal(syscall.SIGCONT))
	<-time.After(givenUp)
	ask(t, p, "launch 1000", success)
}

// That a thread asks the arbiter for something is no sign that there is one.
func TestWhoInsistsWithoutAnArbiterIsRefusedAsWell(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseFree)
	p := start(t, g.box, nil, "insists")
	expect(t, p, "ready")
	ask(t, p, "launch 1000", success)
	g.disappear()
	require.NoError(t, rig.Until("launches to be refused", answers(p, systemNotReady)))
}

// Other threads attach again as well, and may always be first.
func TestWhoIsAnsweredNowAndThenIsNotRefused(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.set(wire.LeaseFree)
	p := start(t, g.box, nil, "insists")
	expect(t, p, "ready")
	attached := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.demands)
	}
	for end := clock() + 2*givenUp; clock() < end; {
		g.disappear()
		<-time.After(300 * time.Millisecond)
		before := attached()
		g.serve()
		until(t, "the program to attach", func() bool { return attached() > before })
		ask(t, p, "launch 1000", success)
	}
}

// Each of them is tried for a second.
func TestManySharesWithoutAnArbiterAreRefusedAsSoon(t *testing.T) {
	t.Parallel()
	need(t)
	r, err := rig.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	var shares []rig.Share
	var hands []*hand
	for range 24 {
		c, err := r.Card(simcard.Config{})
		require.NoError(t, err)
		s, err := r.Share(c, 1024)
		require.NoError(t, err)
		h := newHand(t, s)
		h.set(wire.LeaseFree)
		shares, hands = append(shares, s), append(hands, h)
	}
	p := tenant(t, newBox(t, r, shares...), 0)
	ask(t, p, "launch 1000", success)
	for _, h := range hands {
		h.disappear()
	}
	require.NoError(t, rig.Until("launches to be refused", answers(p, systemNotReady)))
}
