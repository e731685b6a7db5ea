// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	// leastCharge is what processes of a share may compute without its being charged.
	leastCharge = 50 * time.Millisecond
	// mostUnused is for how long a share can have had the card without computing, for which it
	// may compute later: what cards say is late, and of some other second.
	mostUnused = 2 * time.Second
	// computeRounding of the time is not charged: cards say whole percents.
	computeRounding = 0.01
)

// over is what the processes of a share computed, less the time for which it had the card: what was
// not charged yet, or, below zero, what was and was not used.
type over time.Duration

// add what they computed in the time that passed, and for how long the share had the card, and give what is
// to be charged.
func (o *over) add(used, held, passed time.Duration) (charge time.Duration) {
	used -= time.Duration(computeRounding * float64(passed))
	// Who had the card while nobody computed may have had it for longer than that.
	sum := time.Duration(*o) + max(used, 0) - min(held, passed)
	if sum > leastCharge {
		*o = 0
		return sum
	}
	*o = over(max(sum, -mostUnused))
	return 0
}

// charge shares, whose processes cannot be told apart, with what they computed. The caller has c.mu.
func (a *Arbiter) charge(ctx context.Context, c *hostedCard, group []share.Key, d time.Duration) {
	if d == 0 || a.config.Watchdog.Uncharged {
		return
	}
	for _, key := range group {
		part := d / time.Duration(len(group))
		c.watched.compute.charges[key] += part
		a.compute.post(func(now lease.Time) { a.compute.scheduler.Charge(now, key, part) })
		klog.FromContext(ctx).V(4).Info("A share is charged with what it computed beyond its lease", "share", key, "card", c.id, "time", part)
	}
}
