// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

func TestTheWatchdogChargesWhatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	n.start(t)
	c := attach(t, n.served(t, some("a", 4096)))
	require.True(t, c.Take(100*mib))
	n.usage.set(os.Getpid(), 150*mib)
	eventually(t, func() bool { return c.Slot().Implicit.Load() == 50*mib }, "the heap of printf has grown")
	c.Slot().Reserve.Store(500 * mib)
	n.usage.set(os.Getpid(), 700*mib)
	eventually(t, func() bool { return c.Slot().Implicit.Load() == 100*mib }, "what is reserved is charged already")
	c.Slot().Reserve.Store(0)
	eventually(t, func() bool { return c.Slot().Implicit.Load() == 600*mib }, "a context was made")
	n.usage.set(os.Getpid(), 110*mib)
	eventually(t, func() bool { return c.Slot().Implicit.Load() == 10*mib }, "and is gone")
	require.Empty(t, n.events.all())
}

func TestABusyProcessIsLeftAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	n.start(t)
	dir := n.served(t, some("a", 4096))
	c, h := attach(t, dir), startHelper(t)
	h.ask(t, "attach", dir)
	c.Slot().Inflight.Store(1)
	n.usage.set(os.Getpid(), 100*mib)
	n.usage.set(h.pid(), 100*mib)
	eventually(t, func() bool { return c.Ledger.Slot[1].Implicit.Load() == 100*mib }, "the other one is charged")
	n.usage.set(h.pid(), 200*mib)
	eventually(t, func() bool { return c.Ledger.Slot[1].Implicit.Load() == 200*mib }, "and again")
	require.Zero(t, c.Slot().Implicit.Load())
}

// over makes a helper hold more than its share allows, as one does that forges
// the ledger.
func (n *node) over(t *testing.T, dir string) *helper {
	t.Helper()
	h := startHelper(t)
	h.ask(t, "attach", dir)
	n.usage.set(h.pid(), 5000*mib)
	return h
}

func TestAShareThatHoldsTooMuchIsTold(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionEvent)
	a := n.start(t)
	dir := n.served(t, some("a", 4096))
	c := attach(t, dir)
	h := startHelper(t)
	h.ask(t, "attach", dir)
	n.usage.set(h.pid(), (4096+64)*mib) // within the tolerance
	eventually(t, func() bool { return c.Ledger.Slot[1].Implicit.Load() == (4096+64)*mib }, "it was looked at")
	require.Empty(t, n.events.all())
	n.usage.set(h.pid(), (4096+65)*mib)
	eventually(t, func() bool { return len(n.events.all()) > 0 }, "the owner is told")
	require.Equal(t, fmt.Sprintf("team-a/a MemoryOverLimit: processes of this share hold 4161Mi of card GPU-00000000-0000-4000-8000-000000000000, "+
		"its limit is 4096Mi: %d (4161Mi). Does the container bring a CUDA driver library of its own?", h.pid()), n.events.all()[0])
	require.Zero(t, c.Grant.Flags.Load())
	shares, cards := a.Uses()
	require.Equal(t, 1, shares[0].Findings)
	require.EqualValues(t, (4096+65)*mib, cards[0].Used)
	n.usage.set(h.pid(), mib)
	eventually(t, func() bool { shares, _ := a.Uses(); return shares[0].Findings == 0 }, "it has ended")
	n.usage.set(h.pid(), 5000*mib)
	eventually(t, func() bool { return len(n.events.all()) == 2 }, "and comes again")
}

func TestAMomentOfTooMuchIsForgiven(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	watched := n.configure
	n.configure = func(c *arbiter.Config) {
		watched(c)
		c.Watchdog.Grace = time.Hour
	}
	a := n.start(t)
	dir := n.served(t, some("a", 4096))
	n.over(t, dir)
	eventually(t, func() bool { shares, _ := a.Uses(); return shares[0].Findings == 1 }, "it is found")
	require.Empty(t, n.events.all())
	require.Zero(t, attach(t, dir).Grant.Flags.Load())
}

func TestAShareIsWithheldUntilItHoldsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionWithhold)
	n.start(t)
	dir, other := n.served(t, some("a", 4096)), n.served(t, some("b", 4096))
	c, bystander := attach(t, dir), attach(t, other)
	h := n.over(t, dir)
	// This process is in both shares, so that they count together.
	require.Zero(t, bystander.Grant.Flags.Load())
	n.usage.set(h.pid(), 9000*mib)
	eventually(t, func() bool { return c.Grant.Flags.Load() == wire.GrantWithheld }, "the share is withheld")
	require.Contains(t, refusedProcess(t, dir).Error(), "refused (denied): the watchdog withholds the share")
	require.Equal(t, "slot 1 ok", h.ask(t, "again", dir), "who is there may come back")
	n.usage.set(h.pid(), 4000*mib)
	eventually(t, func() bool { return c.Grant.Flags.Load() == 0 }, "it is free again")
	attach(t, dir)
}

func TestProcessesThatAreTooMuchAreKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	n.start(t)
	dir, other := n.served(t, some("a", 4096)), n.served(t, some("b", 4096))
	honest, bystander := startHelper(t), startHelper(t)
	honest.ask(t, "attach", dir)
	honest.ask(t, "take", 3000*mib)
	n.usage.set(honest.pid(), 3000*mib)
	bystander.ask(t, "attach", other)
	n.usage.set(bystander.pid(), 4000*mib)
	h := startHelper(t)
	h.ask(t, "attach", dir)
	n.usage.intervene(func() { // what dies holds nothing
		if unix.Kill(h.pid(), 0) != nil {
			n.usage.set(h.pid(), 0)
		}
	})
	n.usage.set(h.pid(), 5000*mib)
	var exit *exec.ExitError
	require.ErrorAs(t, h.Wait(), &exit)
	require.Equal(t, unix.SIGKILL, exit.Sys().(interface{ Signal() unix.Signal }).Signal())
	eventually(t, func() bool { return honest.ask(t, "charge") == fmt.Sprint(uint64(3000*mib)) }, "who can explain what it holds lives on")
	require.Equal(t, "slot 0 ok", bystander.ask(t, "again", other))
}

func TestAProcessOfNobodyIsToldOfAndLeftAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	a := n.start(t)
	dir := n.served(t, some("a", 4096))
	h := startHelper(t)
	n.usage.set(h.pid(), 5000*mib)
	eventually(t, func() bool { return len(n.events.all()) > 0 }, "the administrator is told")
	require.Contains(t, n.events.all()[0], fmt.Sprintf("node UnknownProcess: a process that no share accounts for uses card "+
		"GPU-00000000-0000-4000-8000-000000000000: %d (5000Mi).", h.pid()))
	_, cards := a.Uses()
	require.EqualValues(t, 5000*mib, cards[0].Unattributed)
	n.usage.set(h.pid(), mib)
	require.Equal(t, "slot 0 ok", h.ask(t, "attach", dir), "it lives")
	require.Zero(t, attach(t, dir).Grant.Flags.Load())
	require.Len(t, n.events.all(), 1)
}

// contained runs a helper with mounts of its own, in which it has a share as a
// container does.
func contained(t *testing.T, dir string) *helper {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "unshare", "--mount", "true").Run(); err != nil {
		t.Skipf("no mounts can be made here: %v", err)
	}
	program, err := os.Executable()
	require.NoError(t, err)
	place := t.TempDir()
	script := fmt.Sprintf("mount --bind %q %q && exec %q %s", dir, place, program, helperArgument)
	return startCommand(t, exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation=private", "sh", "-c", script))
}

func TestAProcessThatGoesAroundTheRuntimeIsFoundByItsContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	n.start(t)
	dir, other := n.served(t, some("a", 4096)), n.served(t, some("b", 4096))
	bystander := connect(t, other, wireclient.Hello(wire.RoleObserver))
	h := contained(t, dir)
	require.Equal(t, "unknown command hello", h.ask(t, "hello"), "it runs")
	n.usage.set(h.pid(), 100*mib)
	require.Error(t, h.Wait(), "it is killed")
	require.Contains(t, n.events.all()[0], fmt.Sprintf("team-a/a RuntimeNotUsed: a process in this share's container uses card "+
		"GPU-00000000-0000-4000-8000-000000000000 without the sharing runtime: %d (100Mi)", h.pid()))
	require.Len(t, n.events.all(), 1)
	require.Zero(t, bystander.Grant.Flags.Load())
}

func TestAWholeCardIsUsedAsItsOwnerLikes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	n.start(t)
	dir := n.served(t, some("a", 4096, func(s *share.Share) { s.Whole = true }))
	h, nobodys := contained(t, dir), startHelper(t)
	require.Equal(t, "unknown command hello", h.ask(t, "hello"), "it runs")
	n.usage.set(h.pid(), 9000*mib)
	n.usage.set(nobodys.pid(), 100*mib)
	eventually(t, func() bool { return contains(n.events.all(), "node UnknownProcess") }, "who does not belong there is told of")
	require.Len(t, n.events.all(), 1)
	require.Equal(t, "slot 0 ok", h.ask(t, "attach", dir))
	require.Equal(t, "true", h.ask(t, "take", 9000*mib))
}

func TestACardThatCannotBeReadIsTold(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.watch(arbiter.ActionKill)
	a := n.start(t)
	n.usage.fail(errors.New("the card fell off"))
	dir := n.served(t, some("a", 4096))
	eventually(t, func() bool { return contains(n.events.all(), "node CardUnreadable: ") }, "the administrator is told")
	require.Contains(t, n.events.all()[0], "the card fell off")
	n.usage.fail(nil)
	eventually(t, func() bool { _, cards := a.Uses(); return len(cards) > 0 && cards[0].Readable }, "it is read again")
	require.Len(t, n.events.all(), 1)
	attach(t, dir)
}
