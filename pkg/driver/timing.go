// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Timing of a Driver. A zero field takes its default.
type Timing struct {
	// SyncDelay is the time from a change that someone made to our slices to
	// its correction. Default 300 ms: long enough to see all deletions of a
	// kubelet that starts, and slices are back within a second.
	SyncDelay time.Duration
	// Relist is the time between two listings of cards without a reason, and
	// between two looks at other device plugins. Default 30 s.
	Relist time.Duration
	// RetryFirst and RetryMost are the shortest and the longest pause before
	// another try. Default 100 ms and 5 s.
	RetryFirst, RetryMost time.Duration
	// PrepareBudget is how long one call of kubelet is tried. Default 40 s.
	PrepareBudget time.Duration
	// Tell is how long a fault may last within such a call before the claim's
	// owner hears of it. Default 5 s.
	Tell time.Duration
	// HealthResend is how often the health of cards is reported without a
	// change. Default 10 s, a third of what kubelet waits for.
	HealthResend time.Duration
	// Sweep is how often sockets are looked for that killed pods left. Default 1 min.
	Sweep time.Duration
	// Drain is how long calls of kubelet that are under way may go on after the
	// process was asked to end; for two thirds of it they try again. Default 8 s:
	// with LetGo it fits into the 15 s that the pod is given.
	Drain time.Duration
	// Answer is how long an answer may take from its handler to kubelet: gRPC
	// does not say when it has left. Default 100 ms.
	Answer time.Duration
	// LetGo is how long after that a call into the cards' driver is waited for.
	// Default 3 s.
	LetGo time.Duration
}

func (t Timing) withDefaults() Timing {
	return Timing{
		SyncDelay:     cmp.Or(t.SyncDelay, 300*time.Millisecond),
		Relist:        cmp.Or(t.Relist, 30*time.Second),
		RetryFirst:    cmp.Or(t.RetryFirst, 100*time.Millisecond),
		RetryMost:     cmp.Or(t.RetryMost, 5*time.Second),
		PrepareBudget: cmp.Or(t.PrepareBudget, 40*time.Second),
		Tell:          cmp.Or(t.Tell, 5*time.Second),
		HealthResend:  cmp.Or(t.HealthResend, 10*time.Second),
		Sweep:         cmp.Or(t.Sweep, time.Minute),
		Drain:         cmp.Or(t.Drain, 8*time.Second),
		Answer:        cmp.Or(t.Answer, 100*time.Millisecond),
		LetGo:         cmp.Or(t.LetGo, 3*time.Second),
	}
}

// backoff doubles from RetryFirst to RetryMost and stays there.
func (t Timing) backoff() *wait.Backoff {
	return &wait.Backoff{Duration: t.RetryFirst, Factor: 2, Jitter: 0.1, Steps: 64, Cap: t.RetryMost}
}
