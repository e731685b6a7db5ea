// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// dead is an attachment whose process was seen to have ended.
type dead struct {
	*attachment
	noticed time.Time
	done    chan struct{}
}

// reap frees the slot of a process that has ended, together with those of all
// that end at the same time: one look at the card does for them all.
func (c *hostedCard) reap(a *attachment) {
	d := dead{a, time.Now(), make(chan struct{})}
	c.mu.Lock()
	c.dead = append(c.dead, d)
	first := len(c.dead) == 1 && !c.reaping
	if first {
		c.reaping = true
	}
	c.mu.Unlock()
	if first {
		c.reapAll()
		return
	}
	select {
	case <-d.done:
	case <-a.share.ctx.Done():
	}
}

// reapEnded frees the slots of all who have ended by now, of whom nobody may have told
// yet: who has waited for another process may count on its memory.
func (c *hostedCard) reapEnded() {
	var all, ended []*attachment
	c.mu.Lock()
	for _, attachments := range c.byPID {
		all = append(all, attachments...)
	}
	c.mu.Unlock()
	for _, a := range all {
		if a.ended() {
			ended = append(ended, a)
		}
	}
	var reaped sync.WaitGroup
	for _, a := range ended {
		reaped.Go(func() { c.reap(a) })
	}
	reaped.Wait()
}

// reapAll frees slots until nobody is dead any more.
func (c *hostedCard) reapAll() {
	for {
		c.mu.Lock()
		batch := c.dead
		c.dead = nil
		if len(batch) == 0 {
			c.reaping = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		pids := make(map[int]bool, len(batch))
		for _, d := range batch {
			pids[d.pid] = true
		}
		kept := c.raiseOthers(c.meter.ctx, pids, reapLimit)
		for _, d := range batch {
			s := d.share
			c.mu.Lock()
			freed := s.freeKeeping(d.attachment, kept)
			c.mu.Unlock()
			if freed {
				s.arbiter.recorder.Reaped(time.Since(d.noticed))
				klog.FromContext(s.ctx).V(4).Info("A process has ended", "share", s.key, "pid", d.pid, "slot", d.slot)
			}
			close(d.done)
		}
	}
}
