// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// sharer is a share in a box, and the program that works there, with all of its processes.
type sharer struct {
	rig     *rig.Rig
	box     *sandbox.Box
	args    []string
	program *rig.Program
}

// newSharer makes a share on the card, and lets a program use it without end.
func newSharer(t *testing.T, r *rig.Rig, c *simcard.Card, policy share.Policy, cores card.Percent, args ...string) *sharer {
	t.Helper()
	return newSharerOf(t, r, args, changed(t, r, c, func(s *share.Share) { s.Policy, s.Limits.Cores = policy, cores }))
}

// changed makes a share on the card that is served.
func changed(t *testing.T, r *rig.Rig, c *simcard.Card, change func(*share.Share)) rig.Share {
	t.Helper()
	s, err := r.Share(c, 1024, change)
	require.NoError(t, err)
	require.NoError(t, r.Served(s))
	return s
}

// newSharerOf lets a program use shares without end.
func newSharerOf(t *testing.T, r *rig.Rig, args []string, shares ...rig.Share) *sharer {
	t.Helper()
	sh := &sharer{rig: r, box: newBox(t, r, shares...), args: append([]string{"seconds=100000"}, args...)}
	sh.work(t)
	return sh
}

// work starts the program.
func (s *sharer) work(t *testing.T) {
	t.Helper()
	cmd := exec.Command(rig.Client("work"), s.args...)
	cmd.Env = rig.Environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	s.program, err = rig.Start(s.box, cmd)
	require.NoError(t, err)
	program := s.program
	t.Cleanup(func() { program.Signal(syscall.SIGKILL) }) //nolint:errcheck // it may have ended
	_, err = s.program.Expect("ready")
	require.NoError(t, err)
	require.NoError(t, s.program.Say(fmt.Sprintf("go %d", clock())))
}

// busyBy is how long processes of each of the sharers had the card so far.
func busyBy(t *testing.T, c *simcard.Card, sharers []*sharer) []map[[2]int64]time.Duration {
	t.Helper()
	truth, err := c.Truth()
	require.NoError(t, err)
	busy := make([]map[[2]int64]time.Duration, len(sharers))
	for i := range busy {
		busy[i] = map[[2]int64]time.Duration{}
	}
	for _, slot := range truth.Slots {
		for i, s := range sharers {
			if s.has(slot) {
				busy[i][[2]int64{int64(slot.Number), int64(slot.Started)}] = slot.Busy
			}
		}
	}
	return busy
}

// window in which parts are measured.
const window = time.Second

// parts of the card that the sharers have for a while from now on, in percent.
func parts(t *testing.T, c *simcard.Card, sharers []*sharer) []float64 {
	t.Helper()
	before, began := busyBy(t, c, sharers), time.Now()
	<-time.After(window)
	after, passed := busyBy(t, c, sharers), time.Since(began)
	percent := make([]float64, len(sharers))
	for i := range sharers {
		for process, busy := range after[i] {
			percent[i] += 100 * float64(busy-before[i][process]) / float64(passed)
		}
	}
	return percent
}

// inBounds waits for a window in which everybody has what is expected. How exact that
// is on a machine with nothing else to do, the benchmark tells.
func inBounds(t *testing.T, c *simcard.Card, sharers []*sharer, want []float64) {
	t.Helper()
	tolerance := 6.0 // points
	if rig.Flavour() != "release" {
		tolerance = 15 // with sanitizers, programs themselves are too slow for their part at times
	}
	var last []float64
	err := rig.Until("shares to be in bounds", func() (bool, error) {
		last = parts(t, c, sharers)
		for i := range last {
			if last[i] < want[i]-tolerance || last[i] > want[i]+tolerance {
				var complaints []string
				for _, s := range sharers {
					complaints = append(complaints, s.program.Complaints())
				}
				return false, fmt.Errorf("they have %.1f, want %.1f; they complain %q", last, want, complaints)
			}
		}
		return true, nil
	})
	if err != nil {
		t.Log(portrait(t, sharers[0].rig, c))
	}
	require.NoError(t, err)
	t.Logf("they have %.1f, want %.1f", last, want)
}

func TestTenantsShareACardByTheirPolicies(t *testing.T) {
	t.Parallel()
	type tenant struct {
		policy share.Policy
		cores  card.Percent
		args   []string
	}
	for name, tc := range map[string]struct {
		tenants []tenant
		want    []float64
	}{
		"fixed shares have their part, and the rest idles": {
			[]tenant{{share.Fixed, 20, nil}, {share.Fixed, 30, nil}}, []float64{20, 30},
		},
		"all that is guaranteed is wanted": {
			[]tenant{{share.GuaranteedBurst, 20, nil}, {share.GuaranteedBurst, 30, nil}, {share.GuaranteedBurst, 50, nil}}, []float64{20, 30, 50},
		},
		"a bursting share has what a fixed one leaves": {
			[]tenant{{share.Fixed, 20, nil}, {share.GuaranteedBurst, 30, nil}}, []float64{20, 80},
		},
		"weights, whatever the kernels and processes": {
			[]tenant{{share.NativeBurst, 10, []string{"kernels=200000", "processes=3"}}, {share.NativeBurst, 30, []string{"kernels=3000000"}}}, []float64{25, 75},
		},
		"best effort is the same for all": {
			[]tenant{{share.BestEffort, 0, nil}, {share.BestEffort, 0, []string{"kernels=100000"}}, {share.BestEffort, 0, []string{"threads=4"}}},
			[]float64{33.3, 33.3, 33.3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := newCard(t, r, simcard.Config{})
			var sharers []*sharer
			for _, of := range tc.tenants {
				sharers = append(sharers, newSharer(t, r, c, of.policy, of.cores, of.args...))
			}
			inBounds(t, c, sharers, tc.want)
		})
	}
}

func TestOfflineWorkHasWhatOnlineWorkLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	online := newSharerOf(t, r, []string{"on=50", "off=50"}, changed(t, r, c, func(s *share.Share) {
		s.Class, s.Policy, s.Limits.Cores = share.Online, share.GuaranteedBurst, 30
	}))
	offline := newSharerOf(t, r, nil, changed(t, r, c, func(s *share.Share) {
		s.Class, s.Policy, s.Limits.Cores, s.Limits.OfflineCores = share.Offline, share.GuaranteedBurst, 0, 30
	}))
	both := []*sharer{online, offline}
	inBounds(t, c, both, []float64{50, 46}) // less than half, for it waits until online work is over for good
	online.end(t)
	inBounds(t, c, both, []float64{0, 100})
	online.args = []string{"seconds=100000"}
	online.work(t)
	inBounds(t, c, both, []float64{100, 0})
	online.end(t)
	inBounds(t, c, both, []float64{0, 100})
	require.Empty(t, offline.program.Complaints())
}

// end ends the program as it is.
func (s *sharer) end(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGKILL)
	require.Error(t, s.program.Wait())
}

// signal all processes of the program, which has not ended by itself.
func (s *sharer) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	select {
	case <-s.program.Done():
		require.Fail(t, "the program has ended by itself", "%v: %s", s.program.Wait(), s.program.Complaints())
	default:
	}
	require.NoError(t, syscall.Kill(-s.program.PID, sig))
}

// A program whose work goes in step on two cards, of which each has another tenant.
func TestAClaimHasItsCardsAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cards := []*simcard.Card{newCard(t, r, simcard.Config{}), newCard(t, r, simcard.Config{})}
	claim := share.Claim{UID: uuid.NewString(), Namespace: "rig", Name: "gang"}
	var of []rig.Share
	for i, c := range cards {
		of = append(of, changed(t, r, c, func(s *share.Share) {
			s.Claim, s.Request = claim, fmt.Sprint("gpu", i)
			s.Policy, s.Limits.Cores = share.GuaranteedBurst, 50
		}))
	}
	gang := newSharerOf(t, r, []string{"devices=2", "batch=1"}, of...)
	var on [][]*sharer
	for _, c := range cards {
		on = append(on, []*sharer{gang, newSharer(t, r, c, share.GuaranteedBurst, 50)})
	}
	for i, c := range cards {
		inBounds(t, c, on[i], []float64{50, 50})
	}
	var last float64
	require.NoError(t, rig.Until("the claim to have its cards together", func() (bool, error) {
		if last = together(t, cards, gang); last < 80 {
			return false, fmt.Errorf("it has both for %.1f %% of the time that it has one", last)
		}
		return true, nil
	}))
	t.Logf("it has both cards for %.1f %% of the time that it has one", last)
}

// together is for what part of the time that a sharer has any of the cards, from now on
// for a while, it has all of them, in percent.
func together(t *testing.T, cards []*simcard.Card, s *sharer) float64 {
	t.Helper()
	const step, keeps = 100 * time.Microsecond, 300 * time.Microsecond // it keeps a card over shorter pauses
	from := clock()
	<-time.After(window)
	steps := int(window / step)
	at := func(when time.Duration) int { return min(max(int((when-from)/step), 0), steps) }
	has := make([]int, steps)
	for _, c := range cards {
		var last time.Duration
		for _, run := range s.runs(t, c) {
			start := run.Start
			if start-last < keeps {
				start = last
			}
			for n := at(start); n < at(run.End); n++ {
				has[n]++
			}
			last = run.End
		}
	}
	one, all := 0, 0
	for _, n := range has {
		if n > 0 {
			one++
		}
		if n == len(cards) {
			all++
		}
	}
	return 100 * float64(all) / float64(max(one, 1))
}

// runs of kernels of the sharer's processes that live, as far as the card remembers them.
func (s *sharer) runs(t *testing.T, c *simcard.Card) []simcard.Run {
	t.Helper()
	slots := map[int]bool{}
	truth, err := c.Truth()
	require.NoError(t, err)
	for _, slot := range truth.Slots {
		slots[slot.Number] = s.has(slot)
	}
	return slices.DeleteFunc(c.Runs(0), func(run simcard.Run) bool { return !slots[run.Slot] || run.What != simcard.Kernels })
}

// has tells whether a process of the sharer has the slot of a card.
func (s *sharer) has(slot simcard.Slot) bool {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", slot.PID)) // fails where it has ended
	return err == nil && s.box.Namespace() == namespace
}

// CHAOS_SECONDS does it for longer, CHAOS_SEED repeats.
func TestSharesComeBackAfterAnybodyWasKilledOrStopped(t *testing.T) {
	t.Parallel()
	seed := uint64(number(t, "CHAOS_SEED", int(time.Now().UnixNano()%1_000_000_000)))
	t.Logf("CHAOS_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	sharers := []*sharer{
		newSharer(t, r, c, share.GuaranteedBurst, 20, "kernels=100000"),
		newSharer(t, r, c, share.GuaranteedBurst, 30, "processes=2"),
		newSharer(t, r, c, share.GuaranteedBurst, 50, "kernels=2000000", "threads=2"),
	}
	want := []float64{20, 30, 50}
	inBounds(t, c, sharers, want)
	stopped := map[*sharer]bool{}
	goOn := func(s *sharer) {
		s.signal(t, syscall.SIGCONT)
		delete(stopped, s)
	}
	for end := time.Now().Add(time.Duration(number(t, "CHAOS_SECONDS", 5)) * time.Second); time.Now().Before(end); {
		s := sharers[random.IntN(len(sharers))]
		switch random.IntN(8) {
		case 0, 1:
			s.end(t)
			delete(stopped, s)
			s.work(t)
		case 2, 3, 4:
			if stopped[s] {
				goOn(s)
				break
			}
			s.signal(t, syscall.SIGSTOP)
			stopped[s] = true
		case 5:
			require.NoError(t, r.Arbiter().Signal(syscall.SIGSTOP))
			<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
			require.NoError(t, r.Arbiter().Signal(syscall.SIGCONT))
		case 6:
			killed := time.Now()
			require.NoError(t, r.Arbiter().Signal(syscall.SIGKILL))
			<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
			_, err := r.StartArbiter()
			require.NoError(t, err)
			if away := time.Since(killed); away > time.Second {
				t.Logf("it took the machine %s to replace the arbiter: programs give up after 5 s", away)
			}
		}
		<-time.After(time.Duration(random.IntN(100)) * time.Millisecond)
	}
	for s := range stopped {
		goOn(s)
	}
	inBounds(t, c, sharers, want)
	for _, s := range sharers {
		require.Empty(t, s.program.Complaints())
	}
}
