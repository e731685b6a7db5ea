// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// What the card waits for may be yet to be launched. Each second time it is launched late, so that what waits is
// expected to take long: the launch that it waits for is let go long before that has passed.
func TestALaunchThatOthersWaitForIsLetGo(t *testing.T) {
	t.Parallel()
	const late, brief, rounds = 50 * time.Millisecond, 20 * time.Microsecond, 40 // as the client has them
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := begin(t, g.box, "estimates", "held")
	expect(t, p, "ok")
	until(t, "the card to tell of its work", func() bool {
		return g.ran(0) > 4*(rounds-1)*brief // in each of two kernels, which may be one run, twice
	})
	var idle []time.Duration
	runs := g.runs(0)
	for i := 1; i < len(runs); i++ {
		idle = append(idle, runs[i].Start-runs[i-1].End)
	}
	slices.Sort(idle)
	require.Greater(t, idle[len(idle)-rounds+1], late*9/10, "it was late in each round")
	// In the others it may be so for want of a processor, and here and there between two rounds.
	require.Less(t, idle[len(idle)-2*rounds+rounds/4], late/15, "the card was idle for that in three quarters of the rounds: %v", idle)
}

// Where what is let go does not end them, it would pile up behind long kernels.
func TestShortLaunchesDoNotPileUpBehindLongKernels(t *testing.T) {
	t.Parallel()
	const long = 20 * time.Millisecond
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := begin(t, g.box, "estimates", "beside")
	expect(t, p, "beside")
	d := g.demand(0)
	var busy []time.Duration
	for range 11 {
		began := clock()
		until(t, "work", func() bool { return len(g.runs(began)) > 100 })
		busy = append(busy, g.busyAfterClosing(d))
		g.set(wire.LeaseOpen)
	}
	slices.Sort(busy)
	require.Less(t, busy[len(busy)*3/4], 4*handWindow+2*long, "work in flight, three times of four: %v", busy)
	require.NoError(t, p.Signal(syscall.SIGKILL))
}

// drain is how a process obeyed a closed lease: it said so before its work had ended, and took it back.
type drain struct {
	early, takenBack bool
	over             time.Duration
	// blind is for how long nobody looked, at most.
	blind time.Duration
}

// follow closes the lease, and looks on until it is obeyed for good.
func (g gated) follow(t *testing.T, d *wire.Demand) (saw drain) {
	t.Helper()
	word := g.set(wire.LeaseClosed)
	look := time.NewTicker(50 * time.Microsecond)
	defer look.Stop()
	looked := clock()
	for deadline := looked + rig.Patience; looked < deadline; <-look.C {
		now := clock()
		saw.blind, looked = max(saw.blind, now-looked), now
		said, ends := d.Drained.Load() == word, d.Ends.Load()
		switch {
		case said && ends == 0:
			saw.over = clock()
			return saw
		case said:
			saw.early = true
		case saw.early:
			saw.takenBack = true
		}
	}
	require.Fail(t, "the closed lease is not obeyed")
	return saw
}

// A process says by its estimates that it obeys a closed lease, shortly before its work has ended.
func TestAWrongWordOnWhenWorkEndsIsTakenBack(t *testing.T) {
	t.Parallel()
	const longer = 100 * time.Millisecond // as the client has it
	g := newGated(t)
	g.set(wire.LeaseOpen)
	p := begin(t, g.box, "estimates", "longer")
	// turn lets the process launch, closes the lease, and judges by the card.
	turn := func() drain {
		g.set(wire.LeaseOpen)
		require.NoError(t, p.Say("launch"))
		expect(t, p, "launched")
		saw := g.follow(t, g.demand(0))
		require.False(t, g.busyBetween(saw.over, clock()), "the card works although the lease is obeyed for good")
		return saw
	}
	for range 3 {
		until(t, "a wrong word", func() bool {
			saw := turn()
			if saw.blind > longer/2 {
				return false // a word may have been taken back meanwhile
			}
			require.Equal(t, saw.early, saw.takenBack, "the card worked for long, and the process did not take its word back")
			return saw.early
		})
		require.False(t, turn().early, "a word is given right after one that was wrong")
	}
	require.NoError(t, p.Signal(syscall.SIGKILL))
}

// Of a thread with many streams, too, little is launched without anybody looking when it ends: of kernels that were
// short until then, and are not now, all but so much is waited for.
func TestLittleIsUnknownOfWhatAThreadLaunchesOnManyStreams(t *testing.T) {
	t.Parallel()
	const kernel, streams, rounds = 160 * time.Microsecond, 16, 10 // as the client has them
	// A processor that comes late makes runs of the card longer: what is so each time is no matter of it.
	const tries = 5
	var after time.Duration
	for range tries {
		g := newGated(t)
		g.set(wire.LeaseOpen)
		p := begin(t, g.box, "estimates", "grown")
		expect(t, p, "launched")
		saw := g.follow(t, g.demand(0))
		expect(t, p, "ok")
		after = 0
		for _, run := range g.runs(0) {
			after += max(0, run.End-max(run.Start, saw.over))
		}
		require.Greater(t, g.ran(0), streams*rounds*kernel, "the card did all")
		if after < streams*rounds*kernel/4 {
			return
		}
	}
	require.Less(t, after, streams*rounds*kernel/4, "what the card did when the closed lease was obeyed for good, each time")
}

// Somebody launches a kernel much longer than those before at the end of a turn, so that the other's turn begins
// while it runs. The card then divides its time between both, and what was not charged would show.
func TestWhoRunsPastItsTurnByAWrongEstimatePaysForIt(t *testing.T) {
	t.Parallel()
	const slice = 2 * time.Millisecond // the card's, where two want it
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	newSharer(t, r, c, share.GuaranteedBurst, 95)
	s := changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = share.GuaranteedBurst, 5 })
	cheat := &sharer{box: newBox(t, r, s)}
	cheat.program = begin(t, cheat.box, "estimates", "past")
	for past := 0; past < 3; {
		quiet(t, cheat.program)
		began, before, held := clock(), cheat.had(t, c), told(t, r, s.Key).Held
		require.NoError(t, cheat.program.Say("run past the turn"))
		quiet(t, cheat.program)
		had := cheat.had(t, c) - before
		until(t, "what ran to be charged", func() bool { return !told(t, r, s.Key).Draining })
		held = told(t, r, s.Key).Held - held
		require.Greater(t, held, had/2, "it had the card for %s", had)
		require.NoError(t, cheat.program.Say("go on"))
		runs := slices.DeleteFunc(cheat.runs(t, c), func(run simcard.Run) bool { return run.Start < began })
		for i := 1; i < len(runs); i++ {
			if away := runs[i].Start - runs[i-1].End; away > slice/2 && away < 2*slice {
				past++
				t.Logf("it ran past its turn, had the card for %s and is charged with %s", had, held)
				break
			}
		}
	}
}

// had is for how long the sharer's processes have had the card.
func (s *sharer) had(t *testing.T, c *simcard.Card) (busy time.Duration) {
	t.Helper()
	for _, of := range busyBy(t, c, []*sharer{s})[0] {
		busy += of
	}
	return busy
}

// told is what the arbiter says of a share.
func told(t *testing.T, r *rig.Rig, key share.Key) nodeview.Share {
	t.Helper()
	node, err := nodeview.Get(t.Context(), filepath.Join(r.Dir, "run", nodeview.SocketName))
	require.NoError(t, err)
	for _, c := range node.Cards {
		for _, s := range c.Shares {
			if s.Key == key {
				return s
			}
		}
	}
	require.Fail(t, "the arbiter does not know the share")
	return nodeview.Share{}
}
