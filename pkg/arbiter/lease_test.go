// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/fixture"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// turns of a tenant that works until the test ends.
type turns struct{ atomic.Int64 }

// more waits until the tenant has had so many more.
func (n *turns) more(t *testing.T, many int64, what string) {
	t.Helper()
	from := n.Load()
	eventually(t, func() bool { return n.Load() >= from+many }, what)
}

// work lets a client work until the test or ctx ends.
func work(ctx context.Context, t *testing.T, c *wireclient.Client) *turns {
	t.Helper()
	n := &turns{}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Work(ctx, func() { n.Add(1) })
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return n
}

// with makes a share one of that policy and part.
func with(policy share.Policy, cores card.Percent) func(*share.Share) {
	return func(s *share.Share) { s.Policy, s.Limits.Cores = policy, cores }
}

func class(of share.Class, cores, offline card.Percent) func(*share.Share) {
	return func(s *share.Share) {
		s.Class, s.Policy = of, share.GuaranteedBurst
		s.Limits.Cores, s.Limits.OfflineCores = cores, offline
	}
}

// viewOf is what the arbiter says of the share of a claim.
func (r *running) viewOf(t *testing.T, claim string) nodeview.Share {
	t.Helper()
	for _, c := range r.View(t.Context()).Cards {
		for _, s := range c.Shares {
			if s.ID.Claim.Name == claim {
				return s
			}
		}
	}
	return nodeview.Share{}
}

func TestALeaseGoesRound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string][]func(*share.Share){
		"shares with a fixed part":              {with(share.Fixed, 20), with(share.Fixed, 30), with(share.Fixed, 50)},
		"shares of all policies":                {with(share.Fixed, 20), with(share.GuaranteedBurst, 20), with(share.NativeBurst, 20), with(share.BestEffort, 0)},
		"one online share, and one of no class": {class(share.Online, 20, 0), with(share.GuaranteedBurst, 20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.start(t)
			var all []*turns
			names := []string{"a", "b", "c", "d"}
			for i, change := range tc {
				all = append(all, work(t.Context(), t, attach(t, n.served(t, some(names[i], 1024, change)))))
			}
			for i := range all {
				all[i].more(t, 20, names[i])
			}
			for i, g := range a.Guarantees(t.Context()) {
				require.Equal(t, names[i], g.ID.Claim.Name)
				require.Positive(t, g.Held)
				require.Positive(t, g.Entitled)
				require.Positive(t, g.Throttled)
			}
		})
	}
}

func TestALeaseGoesRoundOnAnOldKernel(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configure = arbiter.OldKernel
	n.start(t)
	first := some("a", 1024)
	all := []*turns{work(t.Context(), t, attach(t, n.served(t, first))), work(t.Context(), t, attach(t, n.served(t, some("b", 1024))))}
	for i := range all {
		all[i].more(t, 10, "it has turns")
	}
	require.NoError(t, n.dirs.Remove(first.Key()))
	all[1].more(t, 10, "the other one goes on")
}

func TestWhoIsAloneOnACardIsFree(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	first := attach(t, n.served(t, some("a", 1024, with(share.BestEffort, 0))))
	eventually(t, func() bool { return first.State() == wire.LeaseFree }, "nobody else is there")
	guest := some("b", 1024, with(share.Fixed, 30))
	second := attach(t, n.served(t, guest))
	eventually(t, func() bool { return first.State() == wire.LeaseOpen }, "somebody is")
	work(t.Context(), t, first)
	work(t.Context(), t, second).more(t, 5, "and has turns")
	require.NoError(t, n.dirs.Remove(guest.Key()))
	eventually(t, func() bool { return first.State() == wire.LeaseFree }, "nobody is there any more")
	require.Equal(t, wire.GrantEnded, second.Grant.Flags.Load())
	eventually(t, func() bool { return second.State() == wire.LeaseClosed }, "who waits is told that the share has ended")
}

func TestAWholeCardIsFreeAndAFixedShareNever(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	whole := attach(t, n.served(t, some("a", 1024, with(share.Fixed, 100), func(s *share.Share) { s.Whole = true })))
	eventually(t, func() bool { return whole.State() == wire.LeaseFree }, "the card is its own")
	fixed := attach(t, n.served(t, some("b", 1024, with(share.Fixed, 30), func(s *share.Share) { s.Card = fixture.Card(1).UUID })))
	work(t.Context(), t, fixed).more(t, 5, "it has turns")
	require.NotEqual(t, wire.LeaseFree, fixed.State(), "it may use a part only, although nobody else is there")
}

func TestTheLeaseOfAProcessThatDiesIsFree(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	h := startHelper(t)
	h.ask(t, "attach", n.served(t, some("a", 1024, with(share.BestEffort, 0))))
	other := attach(t, n.served(t, some("b", 1024, with(share.BestEffort, 0))))
	h.ask(t, "want")
	eventually(t, func() bool { v := a.viewOf(t, "a"); return v.Wants && v.State == "open" }, "it has the card, and does not give it back")
	h.end()
	eventually(t, func() bool { v := a.viewOf(t, "a"); return !v.Wants && !v.Draining && len(v.Processes) == 0 }, "nothing of it is left")
	work(t.Context(), t, other)
	eventually(t, func() bool { return other.State() == wire.LeaseOpen }, "others go on")
	w := startHelper(t)
	w.ask(t, "attach", n.served(t, some("a", 1024, with(share.BestEffort, 0))))
	w.ask(t, "want")
	eventually(t, func() bool { v := a.viewOf(t, "a"); return len(v.Processes) == 1 && v.Processes[0].Wants }, "it waits, or has the card")
	w.end()
	eventually(t, func() bool { return !a.viewOf(t, "a").Wants }, "nobody waits")
}

func TestAProcessThatIsStoppedKeepsNobodyFromTheCard(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	h := startHelper(t)
	h.ask(t, "attach", n.served(t, some("a", 1024, with(share.BestEffort, 0))))
	other := attach(t, n.served(t, some("b", 1024, with(share.BestEffort, 0))))
	h.ask(t, "work")
	eventually(t, func() bool { v := a.viewOf(t, "a"); return v.Wants && v.State == "open" }, "it has the card")
	require.NoError(t, h.Process.Signal(unix.SIGSTOP))
	others := work(t.Context(), t, other)
	eventually(t, func() bool { return other.State() == wire.LeaseOpen }, "after the time to drain another one has it")
	eventually(t, func() bool { v := a.viewOf(t, "a"); return !v.Wants && !v.Draining }, "it does not count")
	require.NoError(t, h.Process.Signal(unix.SIGCONT))
	eventually(t, func() bool { return a.viewOf(t, "a").Wants }, "it is back")
	others.more(t, 3, "and both have turns")
}

func TestOfflineWorkStopsForOnlineWork(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	online := attach(t, n.served(t, some("online", 1024, class(share.Online, 50, 0))))
	offline := attach(t, n.served(t, some("offline", 1024, class(share.Offline, 0, 100))))
	work(t.Context(), t, offline)
	for range 20 {
		eventually(t, func() bool { return offline.State() == wire.LeaseOpen }, "offline work has the card")
		online.Want()
		eventually(t, func() bool { return online.State() == wire.LeaseOpen && offline.State() == wire.LeaseClosed }, "online work has it")
		online.Rest()
	}
	eventually(t, func() bool { return online.Grant.Lease.Load()&wire.LeaseTell != 0 }, "it may launch at once")
}

func TestAClaimHasAllOfItsCardsAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	on := func(number int, request string) func(*share.Share) {
		return func(s *share.Share) { s.Card, s.Request = fixture.Card(number).UUID, request }
	}
	first := attach(t, n.served(t, some("gang", 1024, with(share.GuaranteedBurst, 30), on(0, "one"))))
	second := attach(t, n.served(t, some("gang", 1024, with(share.GuaranteedBurst, 30), on(1, "two"))))
	for i, rival := range []string{"rival", "other"} {
		work(t.Context(), t, attach(t, n.served(t, some(rival, 1024, with(share.GuaranteedBurst, 30), on(i, "gpu")))))
	}
	for _, c := range []*wireclient.Client{first, second} {
		work(t.Context(), t, c)
	}
	for range 5 {
		eventually(t, func() bool { return first.State() == wire.LeaseOpen && second.State() == wire.LeaseOpen }, "both are open")
		eventually(t, func() bool { return first.State() == wire.LeaseClosed && second.State() == wire.LeaseClosed }, "both are closed")
	}
	require.Len(t, a.View(t.Context()).Cards, 2)
}

// A collective that was launched on one card only ends when it is launched on the other.
func TestAGangThatCannotDrainIsOpenedOnceMore(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	on := func(number int, request string) func(*share.Share) {
		return func(s *share.Share) { s.Card, s.Request = fixture.Card(number).UUID, request }
	}
	first := attach(t, n.served(t, some("gang", 1024, with(share.GuaranteedBurst, 30), on(0, "one"))))
	second := attach(t, n.served(t, some("gang", 1024, with(share.GuaranteedBurst, 30), on(1, "two"))))
	for i, rival := range []string{"rival", "other"} {
		work(t.Context(), t, attach(t, n.served(t, some(rival, 1024, with(share.GuaranteedBurst, 70), on(i, "gpu")))))
	}
	second.Demand.Waiting.Store(1)
	first.Want()
	second.Want()
	// A turn changes the lease three times, and its work never ends: more changes are of
	// being opened once more. Who comes too late for that tries again.
	from, looks := first.Grant.Lease.Load(), 0
	eventually(t, func() bool {
		first.Demand.Used.Add(1) // it is not stopped
		second.Drain()
		if looks++; looks%500 == 0 {
			first.Drain()
			from = first.Grant.Lease.Load()
		}
		return first.Grant.Lease.Load()-from >= 8*wire.LeaseCount
	}, "it can be launched on the second card")
}

func TestHostileDemandHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	hostile := attach(t, n.served(t, some("hostile", 1024)))
	peaceful := work(t.Context(), t, attach(t, n.served(t, some("peaceful", 1024))))
	peaceful.more(t, 1, "it has turns")
	var ringing sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() { // before the pages go
		close(stop)
		ringing.Wait()
	})
	for seed := range uint64(2) {
		ringing.Go(func() {
			random := rand.New(rand.NewPCG(seed, 2))
			page := unsafe.Slice((*uint32)(unsafe.Pointer(hostile.Demand)), 16)
			for {
				select {
				case <-stop:
					return
				default:
				}
				value := random.Uint32()
				if random.IntN(2) == 0 { // words that look right
					value = hostile.Grant.Lease.Load() + wire.LeaseCount*uint32(random.IntN(3)) - wire.LeaseCount
				}
				atomic.StoreUint32(&page[random.IntN(len(page))], value)
				hostile.Ring()
			}
		})
	}
	peaceful.more(t, 10, "it goes on to have turns")
	require.NoError(t, a.Alive(t.Context()))
	require.Positive(t, a.viewOf(t, "peaceful").Held)
}

func TestLeasesGoOnWithTheNextArbiter(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.start(t)
	dirs := []string{n.served(t, some("a", 1024)), n.served(t, some("b", 1024))}
	var clients []*wireclient.Client
	for _, dir := range dirs {
		clients = append(clients, attach(t, dir))
		clients[len(clients)-1].Want()
	}
	// Who comes late to see it must not find that all are in debt for good.
	eventually(t, func() bool { return !clients[0].Drain() || !clients[1].Drain() }, "one has the card")
	first.stop()
	for _, c := range clients {
		require.NotEqual(t, wire.LeaseFree, c.State(), "nobody is free because the arbiter ends")
	}
	n.start(t)
	for i, dir := range dirs {
		back := again(t, clients[i], dir)
		require.Equal(t, wire.OK, back.Welcome.Status)
		require.Zero(t, back.Demand.Wants.Load(), "it is asked anew")
		clients[i] = back
	}
	for i, c := range clients {
		work(t.Context(), t, c).more(t, 5, dirs[i])
	}
}

func TestAConnectionThatIsMadeAnewKeepsItsDemand(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	dir := n.served(t, some("a", 1024))
	c := attach(t, dir)
	c.Want()
	back := again(t, c, dir)
	require.EqualValues(t, 1, back.Demand.Wants.Load())
	back.Rest()
	require.Zero(t, c.Demand.Wants.Load(), "it is the same page")
	eventually(t, func() bool { return !a.viewOf(t, "a").Wants }, "and the arbiter reads it")
}

func TestAShareThatIsWithheldHasNoLease(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionWithhold)
	n.start(t)
	c := attach(t, n.served(t, some("a", 1024)))
	turns := work(t.Context(), t, c)
	turns.more(t, 1, "it has the card")
	n.usage.set(unix.Getpid(), 4096*mib)
	eventually(t, func() bool { return c.Grant.Flags.Load()&wire.GrantWithheld != 0 && c.State() == wire.LeaseClosed }, "it holds too much")
	had := turns.Load()
	n.usage.set(unix.Getpid(), 1)
	eventually(t, func() bool { return c.Grant.Flags.Load()&wire.GrantWithheld == 0 }, "it does not any more")
	eventually(t, func() bool { return turns.Load() > had }, "it has the card")
}

func TestSharesWithoutAnArbiterTakeTurns(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	a := attach(t, n.served(t, some("a", 1024, with(share.Fixed, 20))))
	g := a.Grant
	eventually(t, func() bool { return g.AlonePeriod.Load() != 0 }, "it has a turn")
	b := attach(t, n.served(t, some("b", 1024, with(share.Fixed, 50)))).Grant
	eventually(t, func() bool { return b.AlonePeriod.Load() == g.AlonePeriod.Load() }, "both have one")
	period := time.Duration(g.AlonePeriod.Load())
	require.Equal(t, period/5, time.Duration(g.AloneLength.Load()))
	require.Equal(t, period/2, time.Duration(b.AloneLength.Load()))
	disjoint := g.AloneStart.Load()+g.AloneLength.Load() <= b.AloneStart.Load() || b.AloneStart.Load()+b.AloneLength.Load() <= g.AloneStart.Load()
	require.True(t, disjoint, "never at the same time")
}

func TestWhoWaitsSeesThatThereIsAnArbiter(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	holder, waiter := attach(t, n.served(t, some("a", 1024))), attach(t, n.served(t, some("b", 1024)))
	holder.Want()
	waiter.Want()
	for range 3 {
		before := waiter.Grant.Beat.Load()
		eventually(t, func() bool {
			holder.Demand.Used.Add(1) // it is not stopped
			return waiter.Grant.Beat.Load() > before && holder.Grant.Beat.Load() > before
		}, "the arbiter's beat")
	}
}

func TestSharesThatWantNothingWakeNobody(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	for i := range 64 {
		c := attach(t, n.served(t, some(fmt.Sprint(i), 256, with(share.BestEffort, 0), func(s *share.Share) { s.Card = fixture.Card(i % 4).UUID })))
		c.Want()
		c.Rest()
	}
	eventually(t, func() bool {
		before := a.View(t.Context()).Wakeups
		<-time.After(100 * time.Millisecond)
		return a.View(t.Context()).Wakeups-before <= 2
	}, "nobody but who asks for this")
}

func TestTheWindowIsDividedAmongTheBusyProcesses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	dir := n.served(t, some("a", 1024))
	var all []*wireclient.Client
	for busy := 1; busy <= 12; busy++ {
		c := attach(t, dir)
		c.Want()
		all = append(all, c)
		want := max(time.Millisecond/time.Duration(busy), 100*time.Microsecond)
		eventually(t, func() bool {
			for _, c := range all {
				c.Demand.Used.Add(1) // it is not stopped
			}
			return time.Duration(c.Grant.Window.Load()) == want
		}, "%d processes", busy)
	}
}
