// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Limit says whose a process is, and what all processes of that tenant may hold
// together, in bytes. An empty tenant has no limit.
type Limit func(Slot) (tenant string, bytes uint64)

// Violation is a moment at which a tenant held more than its limit.
type Violation struct {
	Tenant      string
	Held, Limit uint64
	// Slots are the living ones of the tenant at that moment.
	Slots []Slot
}

// String names tenant, amounts and processes.
func (v Violation) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s holds %d bytes, its limit is %d:", v.Tenant, v.Held, v.Limit)
	for _, s := range v.Slots {
		fmt.Fprintf(&text, " slot %d (PID %d, %s) %d", s.Number, s.PID, s.Name, s.Total())
	}
	return text.String()
}

// Report is what Watch saw.
type Report struct {
	// Samples counts the moments that were looked at.
	Samples int
	// Peak is the most that each tenant held at once, as far as it was sampled.
	Peak map[string]uint64
	// Violations, at most 100 of them.
	Violations []Violation
}

// Watch samples the card every interval until ctx ends. Each sample is one
// state of the card, never a mixture of two. What dead processes left and
// nobody has cleared yet counts as nobody's: dead processes hold nothing.
func (c *Card) Watch(ctx context.Context, interval time.Duration, limit Limit) (Report, error) {
	report := Report{Peak: map[string]uint64{}}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := c.sample(&report, limit); err != nil {
			return report, err
		}
		select {
		case <-ctx.Done():
			return report, nil
		case <-ticker.C:
		}
	}
}

func (c *Card) sample(report *Report, limit Limit) error {
	t, still, err := c.oneState()
	if err != nil || !still {
		return err
	}
	report.Samples++
	sums, limits, slots := map[string]uint64{}, map[string]uint64{}, map[string][]Slot{}
	for _, s := range t.Slots {
		tenant, bytes := limit(s)
		if !s.Alive || tenant == "" {
			continue
		}
		sums[tenant] += s.Total()
		limits[tenant] = bytes
		slots[tenant] = append(slots[tenant], s)
	}
	for tenant, held := range sums {
		report.Peak[tenant] = max(report.Peak[tenant], held)
		if held > limits[tenant] && len(report.Violations) < 100 {
			report.Violations = append(report.Violations, Violation{tenant, held, limits[tenant], slots[tenant]})
		}
	}
	return nil
}

// oneState reads the card until nothing has changed meanwhile, and gives up
// after some tries: the next sample may have more luck. Alive is who was so
// before and after.
func (c *Card) oneState() (t Truth, still bool, err error) {
	before, err := c.owners()
	if err != nil {
		return Truth{}, false, err
	}
	for range 1000 {
		number := atomic.LoadUint64(&c.shared.changes)
		t = c.read(before)
		if still = atomic.LoadUint64(&c.shared.changes) == number; still {
			break
		}
	}
	after, err := c.owners()
	for i, s := range t.Slots {
		pid, alive := after[s.Number]
		t.Slots[i].Alive = s.Alive && alive && pid == s.PID
	}
	return t, still, err
}
