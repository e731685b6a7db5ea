// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// report shows how long things took, beside the mean that Go shows.
func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[(len(took)-1)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
}

// until polls until something is so, without taking a processor from what is
// measured.
func until(so func() bool) {
	for !so() {
		time.Sleep(50 * time.Microsecond) //nolint:forbidigo // it measures
	}
}

// From SIGKILL until the slot is clear.
func BenchmarkReap(b *testing.B) {
	n := newNode(b)
	n.start(b)
	dir := n.served(b, some("a", 4096))
	c := attach(b, dir)
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		h := startHelper(b)
		require.Equal(b, "slot 1 ok", h.ask(b, "attach", dir))
		h.ask(b, "take", mib)
		b.StartTimer()
		began := time.Now()
		require.NoError(b, h.Process.Kill())
		until(func() bool { return c.Charge() == 0 })
		took = append(took, time.Since(began))
		b.StopTimer()
		h.end()
		b.StartTimer()
	}
	report(b, took)
}

// From the end of each of many processes that are killed at once, as their parent
// sees it, until its slot is clear.
func BenchmarkReapMany(b *testing.B) {
	const count = 300
	n := newNode(b)
	n.start(b)
	dir := n.served(b, some("a", 4096))
	c := attach(b, dir)
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		helpers := make([]*helper, count)
		for i := range helpers {
			helpers[i] = startHelper(b)
			helpers[i].ask(b, "attach", dir)
		}
		b.StartTimer()
		var ended, cleared [count + 1]time.Time
		var waits sync.WaitGroup
		for i, h := range helpers {
			waits.Go(func() {
				_ = h.Wait()
				ended[i+1] = time.Now()
			})
			require.NoError(b, h.Process.Kill())
		}
		for left := count; left > 0; time.Sleep(100 * time.Microsecond) { //nolint:forbidigo // it measures, and must not take a processor
			for slot := 1; slot <= count; slot++ {
				if cleared[slot].IsZero() && c.Ledger.Slot[slot].Attached.Load() == 0 {
					cleared[slot] = time.Now()
					left--
				}
			}
		}
		waits.Wait()
		for slot := 1; slot <= count; slot++ {
			took = append(took, max(cleared[slot].Sub(ended[slot]), 0))
		}
	}
	report(b, took)
}

// From when share.json is written until a client is answered.
func BenchmarkServe(b *testing.B) {
	n := newNode(b)
	n.start(b)
	s := some("a", 4096)
	var took []time.Duration
	for b.Loop() {
		dir := n.prepare(b, s)
		began := time.Now()
		until(func() bool {
			conn, err := wireclient.Dial(b.Context(), dir)
			return err == nil && conn.Close() == nil
		})
		took = append(took, time.Since(began))
		require.NoError(b, n.dirs.Remove(s.Key()))
	}
	report(b, took)
}

// A hello, the pages, and the end of the connection.
func BenchmarkAttach(b *testing.B) {
	n := newNode(b)
	n.start(b)
	dir := n.served(b, some("a", 4096))
	c := attach(b, dir)
	for b.Loop() {
		back, err := c.Again(b.Context(), dir)
		require.NoError(b, err)
		require.NoError(b, back.Close())
	}
}

// A measurement of a card that answers at once.
func BenchmarkMeasure(b *testing.B) {
	n := newNode(b)
	n.start(b)
	c := attach(b, n.served(b, some("a", 4096)))
	for b.Loop() {
		_, err := c.Measure(0)
		require.NoError(b, err)
	}
}

// From SIGKILL of the process that has the card until the next one has it. Most of it is
// the time that a process takes to die, and needs a processor for.
func BenchmarkLeaseOfTheDead(b *testing.B) {
	// Who looks must not be later than what he looks at.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}, 0) // where it may
	defer unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_NORMAL}, 0)                                                //nolint:errcheck // fewer rights are always allowed
	n := newNode(b)
	n.start(b)
	burst := with(share.BestEffort, 0)
	dir := n.served(b, some("a", 1024, burst))
	next := attach(b, n.served(b, some("b", 1024, burst)))
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		h := startHelper(b)
		h.ask(b, "attach", dir)
		holder := connect(b, dir, wireclient.Hello(wire.RoleObserver))
		h.ask(b, "want")
		until(func() bool { return holder.State() == wire.LeaseOpen && next.State() == wire.LeaseClosed })
		next.Want()
		b.StartTimer()
		began := time.Now()
		require.NoError(b, h.Process.Kill())
		for next.State() != wire.LeaseOpen {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(20 * time.Microsecond)}, nil)
		}
		took = append(took, time.Since(began))
		b.StopTimer()
		h.end()
		next.Rest()
		require.NoError(b, holder.Close())
		b.StartTimer()
	}
	report(b, took)
}
