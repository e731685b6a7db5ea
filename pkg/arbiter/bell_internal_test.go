// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachOfManyBellsWakesTheThread(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		many bool
		n    int
	}{
		"all waited for together":                  {true, maxWaiters - 1},
		"more than the kernel waits for together":  {true, maxWaiters + 3},
		"a kernel that waits for one word at most": {false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.many && !waitsForMany() {
				t.Skip("this kernel waits for one word at most")
			}
			a := alarm{many: tc.many}
			words := make([]atomic.Uint32, tc.n)
			bells := make([]*bell, tc.n)
			for i := range words {
				bells[i] = a.attach(&words[i])
				bells[i].hear(0, 0)
			}
			for i := range words {
				go func() {
					words[i].Add(1)
					wakeAll(&words[i], 0)
				}()
				for !bells[i].rung() {
					a.begin(a.own.Load())
					for _, b := range bells {
						a.await(b)
					}
					if !bells[i].rung() {
						a.sleep(monotonic() + time.Minute)
					}
				}
				bells[i].hear(0, 0)
			}
			for _, b := range bells {
				a.silence(b)
			}
			require.Zero(t, a.direct)
		})
	}
}

func TestWhoRingsWithoutEndIsHeardNowAndThen(t *testing.T) {
	t.Parallel()
	var word atomic.Uint32
	b := &bell{word: &word}
	now, looks := time.Hour, 0
	for end := now + time.Second; now < end; now = max(now, b.mutedUntil()) + time.Nanosecond {
		word.Add(1)
		require.True(t, b.rung())
		b.hear(now, 0)
		looks++
	}
	require.InDelta(t, float64(time.Second/lookEvery)+lookBurst, looks, 2)
	for range lookBurst {
		b.hear(now, processesPerLook*20)
	}
	require.Greater(t, b.mutedUntil(), now+lookEvery*lookBurst*19, "a look at many processes counts for more")
}

func TestManyWhoRingWithoutEndAreHeardTogether(t *testing.T) {
	t.Parallel()
	var a alarm
	now, looks := time.Hour, 0
	for end := now + time.Second; now < end; now = a.deafUntil(now) + time.Nanosecond {
		a.heard(now)
		looks++
	}
	require.InDelta(t, togetherFactor*float64(time.Second/lookEvery+lookBurst), looks, 5)
	now += time.Second
	require.Equal(t, now, a.deafUntil(now), "they have stopped")
}

func TestTheThreadSleepsNoLongerThanItIsTold(t *testing.T) {
	t.Parallel()
	for _, many := range []bool{false, waitsForMany()} {
		a := alarm{many: many}
		until := monotonic() + time.Millisecond
		a.begin(a.own.Load())
		a.sleep(until)
		require.GreaterOrEqual(t, monotonic(), until)
		a.begin(a.own.Load() - 1)
		a.sleep(monotonic() + time.Hour) // rung before it slept
	}
}
