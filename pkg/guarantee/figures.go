// SPDX-License-Identifier: Apache-2.0

package guarantee

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	// leastWanted is how long a share must have wanted compute for its figures to
	// mean something.
	leastWanted = time.Second
	// slight and large are differences in percent of a card, factor one of latencies.
	slight, large = 1.0, 5.0
	factor        = 2.0
)

// window is what a share did between two moments.
type window struct {
	from, to    time.Time
	now         nodeview.Guarantee // with its sums those of the window
	preemptions uint64
}

// since is the window from an earlier reading to a later one of the same share. Sums
// that have become less began anew meanwhile.
func since(from time.Time, before nodeview.Guarantee, to time.Time, now nodeview.Guarantee) window {
	if beganAnew(before, now) {
		before = nodeview.Guarantee{}
	}
	w := window{from, to, now, now.Preemptions - before.Preemptions}
	w.now.Wanted -= before.Wanted
	w.now.Held -= before.Held
	w.now.Entitled -= before.Entitled
	w.now.Throttled -= before.Throttled
	w.now.Latency.Sum -= before.Latency.Sum
	for i := range w.now.Latency.Counts {
		w.now.Latency.Counts[i] -= before.Latency.Counts[i]
	}
	return w
}

func beganAnew(before, now nodeview.Guarantee) bool {
	for i, n := range now.Latency.Counts {
		if n < before.Latency.Counts[i] {
			return true
		}
	}
	return now.Wanted < before.Wanted || now.Held < before.Held || now.Throttled < before.Throttled ||
		now.Entitled < before.Entitled || now.Preemptions < before.Preemptions
}

// status of the share in the window.
func (w window) status() *v1alpha1.ShareStatus {
	s := v1alpha1.NewShareStatus()
	s.Policy, s.Class, s.GrantedPercent = w.now.Policy, w.now.Class, w.now.Limits.Cores
	if s.Class == share.Offline {
		s.GrantedPercent = w.now.Limits.OfflineCores
	}
	if s.Policy.Bursts() {
		ceiling := w.now.Ceiling
		s.BurstCeilingPercent = &ceiling
	}
	s.From, s.To = metav1.NewTime(w.from.UTC().Truncate(time.Second)), metav1.NewTime(w.to.UTC().Truncate(time.Second))
	s.WantedSeconds, s.ThrottledSeconds = rounded(w.now.Wanted.Seconds(), 10), rounded(w.now.Throttled.Seconds(), 10)
	if w.now.Wanted > 0 {
		s.EntitledPercent, s.AchievedPercent = percent(w.now.Entitled, w.now.Wanted), percent(w.now.Held, w.now.Wanted)
	}
	s.Preemptions = int64(w.preemptions) //nolint:gosec // as many as milliseconds have passed
	if w.now.Latency.Count() > 0 {
		s.PreemptionLatencyP50Milliseconds, s.PreemptionLatencyP99Milliseconds = milliseconds(w.now, .5), milliseconds(w.now, .99)
	}
	return s
}

func percent(part, of time.Duration) float64 {
	return rounded(min(100*part.Seconds()/of.Seconds(), 100), 10)
}

func milliseconds(g nodeview.Guarantee, quantile float64) *float64 {
	ms := rounded(g.Latency.Quantile(quantile).Seconds()*1000, 100)
	return &ms
}

func rounded(v, parts float64) float64 { return math.Round(v*parts) / parts }

// change is how much a share's figures differ from what people know.
type change int

const (
	none change = iota
	small
	big
)

// differs tells how much now differs from before, which is nil where nothing was told.
func differs(before, now *v1alpha1.ShareStatus) change {
	if before == nil || before.Policy != now.Policy || before.Class != now.Class || before.GrantedPercent != now.GrantedPercent ||
		ceilingOf(before) != ceilingOf(now) {
		return big
	}
	moved := max(math.Abs(now.AchievedPercent-before.AchievedPercent), math.Abs(now.EntitledPercent-before.EntitledPercent),
		math.Abs(short(now)-short(before)))
	switch {
	case moved >= large:
		return big
	case moved >= slight, apart(before.PreemptionLatencyP99Milliseconds, now.PreemptionLatencyP99Milliseconds):
		return small
	}
	return none
}

func ceilingOf(s *v1alpha1.ShareStatus) int {
	if s.BurstCeilingPercent == nil {
		return 0
	}
	return int(*s.BurstCeilingPercent)
}

// short is what the share lacks of what it should have.
func short(s *v1alpha1.ShareStatus) float64 { return max(0, s.EntitledPercent-s.AchievedPercent) }

// apart tells whether two latencies differ by more than the factor. Where one of
// them is not known nothing is to be said.
func apart(before, now *float64) bool {
	return before != nil && now != nil && max(*before, *now) > factor*min(*before, *now)
}
