// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// instances is how lists of processes of the second and third version are printed.
func instances(pid, mebibytes int) string {
	return fmt.Sprintf(" %d=%d/4294967295/4294967295", pid, mebibytes)
}

func TestAContainerSeesItsShare(t *testing.T) {
	t.Parallel()
	for name, hostPIDs := range map[string]bool{"in a PID namespace": false, "with the PIDs of the host": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			on := n.card(t, 0)
			mine, other := n.share(t, "mine", on, 400), n.share(t, "other", on, 300)
			box, foreign := n.box(t, hostPIDs, mine), n.box(t, false, other)
			n.serve(t)
			first, second := hold(t, box, on).tell(t, "context 50"), hold(t, box, on).tell(t, "context 10")
			stranger := hold(t, foreign, on).tell(t, "context 60")
			n.charge(t, mine, first.pid, first.nsPID, 40, 60)
			n.charge(t, mine, second.pid, second.nsPID, 0, 20)
			n.charge(t, mine, 1, 1, 0, 0) // a process that has nothing yet
			n.charge(t, other, stranger.pid, stranger.nsPID, 120, 0)

			lines, complaints := ask(t, box, "processes")
			require.Empty(t, complaints)
			both := fmt.Sprintf(" %d=100 %d=20", first.nsPID, second.nsPID)
			long := instances(first.nsPID, 100) + instances(second.nsPID, 20)
			require.Equal(t, []string{
				"memory 0 400 280 120",
				"memory_v2 0 400 0 280 120",
				"compute read 0" + both,
				"compute_v2 asked 7 2 read 0" + long,
				"compute_v3 asked 7 2 read 0" + long,
				"graphics read 0",
				"graphics_v3 asked 0 0 read 0",
				"mps read 0",
				"mps_v3 asked 0 0 read 0",
				"details 0" + both,
			}, lines)
		})
	}
}

func TestAContainerSeesTheUtilisationOfItsProcesses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	on := n.card(t, 0)
	mine, other := n.share(t, "mine", on, 400), n.share(t, "other", on, 300)
	box, foreign := n.box(t, false, mine), n.box(t, false, other)
	outside := n.box(t, true, mine)
	n.serve(t)
	first, second := hold(t, box, on).tell(t, "context 1"), hold(t, box, on).tell(t, "context 1")
	stranger := hold(t, foreign, on).tell(t, "context 1", "runs 3000 40")
	first.tell(t, "runs 3000 25")
	second.tell(t, "runs 3000 0")
	n.charge(t, mine, first.pid, first.nsPID, 2, 0)
	n.charge(t, mine, second.pid, second.nsPID, 2, 0)
	n.charge(t, other, stranger.pid, stranger.nsPID, 2, 0)
	both := fmt.Sprintf(" %d=25 %d=0", first.nsPID, second.nsPID)
	// The driver calls processes by the number that they have where it is asked, as
	// newer ones do, or by that of the host.
	for name, in := range map[string]func() []string{
		"where the driver counts as the container": func() []string {
			lines, _ := ask(t, box, "busy", fmt.Sprint(time.Now().Add(-1500*time.Millisecond).UnixMicro()))
			return lines
		},
		"where the driver counts as the host": func() []string {
			lines, _ := ask(t, outside, "busy", fmt.Sprint(time.Now().Add(-1500*time.Millisecond).UnixMicro()))
			return lines
		},
	} {
		require.Equal(t, []string{
			"rates 0 25 0",
			"processes asked 7 2 read 0" + both,
			"info 0" + both,
			"samples 3 type 7 count 200",
			"seen 6",
		}, in(), name)
	}
}

func TestSharesOfOneCardAddUpAndOtherCardsStayApart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, second, third := n.card(t, 0), n.card(t, 1), n.card(t, 2)
	one, two, rest := n.share(t, "one", first, 400), n.share(t, "two", first, 200), n.share(t, "rest", second, 100)
	box := n.box(t, false, one, two, rest)
	n.serve(t)
	n.charge(t, one, 1000001, 11, 100, 0)
	n.charge(t, two, 1000001, 11, 50, 50)
	n.charge(t, two, 1000002, 12, 8, 0)
	n.charge(t, rest, 1000001, 11, 4, 0)
	for id, want := range map[card.UUID][]string{
		first:  {"memory 0 600 392 208", "compute read 0 11=200 12=8"},
		second: {"memory 0 100 96 4", "compute read 0 11=4"},
		third:  {"memory 4 0 0 0", "compute read 4"}, // no permission
	} {
		lines, _ := ask(t, box, "processes", string(id))
		require.Equal(t, want, []string{lines[0], lines[2]}, id)
	}
	lines, _ := ask(t, box, "busy", "0", string(third))
	require.Equal(t, []string{"rates 4 99 99", "processes asked 4 0 read 4", "info 4", "samples 4 type 7 count 200", "seen 4"}, lines)
}

func TestNumbersThatCannotBeAreNotShown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit     card.MiB
		committed uint64
		want      string
	}{
		"more charged than allowed":     {400, 500, "memory 0 400 0 400"},
		"a ledger that was scribbled":   {400, 1 << 43, "memory 0 400 0 400"},
		"more allowed than the card is": {5000, 100, "memory 0 1000 900 100"},
		"nothing charged":               {400, 0, "memory 0 400 400 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			key := n.share(t, "mine", n.card(t, 0), tc.limit)
			box := n.box(t, false, key)
			n.serve(t)
			n.charge(t, key, 1000001, 11, tc.committed, 0)
			lines, _ := ask(t, box, "processes")
			require.Equal(t, tc.want, lines[0])
		})
	}
}

func TestWhoHasAWholeCardSeesAllOfIt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	on := n.card(t, 0)
	key := n.share(t, "mine", on, 0)
	box := n.box(t, false, key)
	n.serve(t)
	holder := hold(t, box, on).tell(t, "context 50", "runs 3000 30")
	n.charge(t, key, 1000001, 11, 4, 0)
	lines, _ := ask(t, box, "processes")
	require.Equal(t, []string{"memory 0 1000 800 200", "memory_v2 0 1000 100 800 100", fmt.Sprintf("compute read 0 %d=100", holder.nsPID)}, lines[:3])
	lines, _ = ask(t, box, "busy", "0")
	require.Equal(t, "rates 0 30 0", lines[0])
	require.Regexp(t, `^samples 0 type 1 count \d+`, lines[3])
}

func TestWithoutAnArbiterNothingIsToldOfMemory(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	on := n.card(t, 0)
	for name, tc := range map[string]struct {
		keys []share.Key
		says string
	}{
		"a share that nobody serves": {[]share.Key{n.share(t, "mine", on, 400)}, "tranche-arbiter cannot be reached"},
		"no share at all":            {nil, "this container has no share of a card"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := n.box(t, false, tc.keys...)
			lines, complaints := ask(t, box, "processes")
			require.Equal(t, []string{
				"memory 27 0 0 0",
				"memory_v2 27 0 0 0 0",
				"compute read 27",
				"compute_v2 asked 27 0 read 27",
				"compute_v3 asked 27 0 read 27",
				"graphics read 27",
				"graphics_v3 asked 27 0 read 27",
				"mps read 27",
				"mps_v3 asked 27 0 read 27",
				"details 27",
			}, lines)
			require.Equal(t, 1, strings.Count(complaints, "\n"), complaints)
			require.Contains(t, complaints, tc.says)
			lines, complaints = ask(t, box, "cards")
			require.Empty(t, complaints)
			require.Contains(t, lines[3], "uuid "+string(on))
		})
	}
}

func TestWrongCallsAndThreadsInAContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	key := n.share(t, "mine", n.card(t, 0), 400)
	box := n.box(t, false, key)
	n.serve(t)
	n.charge(t, key, 1000001, 11, 100, 0)
	for _, what := range []string{"wrong", "threads"} {
		lines, complaints := ask(t, box, what)
		require.Equal(t, []string{""}, lines, what)
		require.Empty(t, complaints, what)
	}
}

// Who looks at memory goes on while the arbiter is away, and finds the next one.
func TestAnArbiterThatIsRestarted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	key := n.share(t, "mine", n.card(t, 0), 400)
	box := n.box(t, false, key)
	stop := n.serve(t)
	n.charge(t, key, 1000001, 11, 100, 0)
	looker := talk(t, box, "ask", "memory")
	require.Equal(t, "memory 0 400 300 100", looker.ask(t, ""))
	stop()
	require.Equal(t, "memory 0 400 300 100", looker.ask(t, ""), "what was true last")
	n.serve(t)
	n.charge(t, key, 1000002, 12, 64, 0)
	require.Eventually(t, func() bool { return looker.ask(t, "") == "memory 0 400 236 164" }, patient, 10*time.Millisecond,
		"what a process holds that lives and has not come back yet counts, and what a new one does")
}
