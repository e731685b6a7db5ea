// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"sync"
	"time"
)

// How many connections and requests of a share are served at once, and in a
// second from then on. All processes of a large job may start together.
const (
	connectBurst, connectRate = 2048, 500
	requestBurst, requestRate = 4096, 2000
)

// pace slows down whoever wants too much.
type pace struct {
	burst, rate float64

	mu   sync.Mutex
	left float64
	last time.Time
}

func newPace(burst, perSecond float64) pace { return pace{burst: burst, rate: perSecond, left: burst} }

// wait waits until it is the caller's turn, or ctx ends.
func (p *pace) wait(ctx context.Context) {
	if d := p.take(time.Now()); d > 0 {
		pause(ctx, d)
	}
}

// take takes a turn, and tells how long it is until it comes.
func (p *pace) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.left = min(p.burst, p.left+now.Sub(p.last).Seconds()*p.rate)
	}
	p.last = now
	p.left--
	if p.left >= 0 {
		return 0
	}
	return time.Duration(-p.left / p.rate * float64(time.Second))
}
