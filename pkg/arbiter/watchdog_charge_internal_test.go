// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
)

func TestWhatIsComputedBeyondALeaseIsChargedOnce(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	type sample struct{ used, held, charge time.Duration }
	for name, samples := range map[string][]sample{
		"who has the card all the time":              {{1000 * ms, 1000 * ms, 0}, {1000 * ms, 1000 * ms, 0}},
		"who has far more":                           {{1000 * ms, 200 * ms, 790 * ms}, {1000 * ms, 200 * ms, 790 * ms}, {200 * ms, 200 * ms, 0}},
		"a little more each time":                    {{50 * ms, 10 * ms, 0}, {50 * ms, 10 * ms, 60 * ms}, {50 * ms, 10 * ms, 0}},
		"rounded up, for ever":                       {{210 * ms, 200 * ms, 0}, {210 * ms, 200 * ms, 0}, {210 * ms, 200 * ms, 0}, {210 * ms, 200 * ms, 0}, {210 * ms, 200 * ms, 0}, {210 * ms, 200 * ms, 0}, {210 * ms, 200 * ms, 0}},
		"what the card says comes later":             {{0, 500 * ms, 0}, {500 * ms, 0, 0}},
		"who has the card and does not use it":       {{0, 1000 * ms, 0}, {0, 1000 * ms, 0}, {0, 1000 * ms, 0}, {1000 * ms, 0, 0}, {1000 * ms, 0, 0}, {1000 * ms, 0, 970 * ms}},
		"who had it for hours while nobody computed": {{10 * ms, time.Hour, 0}, {1000 * ms, 0, 0}, {1000 * ms, 0, 980 * ms}},
		"nothing": {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sum over
			for i, s := range samples {
				require.Equal(t, s.charge, sum.add(s.used, s.held, time.Second), i)
			}
		})
	}
}

// Cards are inexact, to either side.
func TestNoiseIsHardlyCharged(t *testing.T) {
	t.Parallel()
	var sum over
	charged, dice := time.Duration(0), rand.New(rand.NewPCG(1, 2))
	const seconds = 10_000
	for range seconds {
		noise := time.Duration(dice.IntN(81)-40) * time.Millisecond
		charged += sum.add(300*time.Millisecond+noise, 300*time.Millisecond, time.Second)
	}
	require.Less(t, charged.Seconds()/seconds, 0.002)
}

func TestWhatWasChargedIsNotTakenForALease(t *testing.T) {
	t.Parallel()
	state := func(held time.Duration, lease string) nodeview.Share {
		return nodeview.Share{Guarantee: nodeview.Guarantee{Key: "a", Held: held, State: lease}}
	}
	only := func(s nodeview.Share) map[share.Key]nodeview.Share { return map[share.Key]nodeview.Share{"a": s} }
	charged := map[share.Key]time.Duration{"a": time.Second}
	held, known := heldBy([]share.Key{"a"}, only(state(0, stateOpen)), only(state(3*time.Second, stateClosed)), charged)
	require.True(t, known)
	require.Equal(t, 2*time.Second, held)
	_, known = heldBy([]share.Key{"a"}, only(state(0, stateOpen)), only(state(time.Second/2, stateClosed)), charged)
	require.False(t, known, "it is another share of that name")
	_, known = heldBy([]share.Key{"a"}, only(state(0, stateFree)), only(state(3*time.Second, stateClosed)), charged)
	require.False(t, known, "it was free for a while")
	require.True(t, anyLeft("", only(state(0, stateOpen)), nil))
	require.False(t, anyLeft("another", only(state(0, stateOpen)), nil))
}
