// SPDX-License-Identifier: Apache-2.0

package wireclient

import (
	"context"
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// lookEvery is how often Work looks at its lease.
const lookEvery = 100 * time.Microsecond

// Ring tells the arbiter to look at the demand page.
func (c *Client) Ring() {
	c.Ledger.Bell.Add(1)
	const wake = 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&c.Ledger.Bell)), wake, math.MaxInt32, 0, 0, 0)
}

// Want says that the client wants the card.
func (c *Client) Want() {
	c.Demand.Wants.Store(1)
	c.Ring()
}

// Rest says that it does not, and has nothing in flight.
func (c *Client) Rest() {
	c.Demand.Wants.Store(0)
	c.Ring()
}

// State of the lease: closed, open or free.
func (c *Client) State() uint32 { return c.Grant.Lease.Load() & wire.LeaseState }

// Drain says that nothing is in flight any more where the lease is closed, and
// tells whether that is so.
func (c *Client) Drain() bool {
	word := c.Grant.Lease.Load()
	if word&wire.LeaseState != wire.LeaseClosed {
		return false
	}
	if c.Demand.Drained.Swap(word) != word {
		c.Ring()
	}
	return true
}

// Work wants the card without end, and is done at once whenever it is taken away.
// It calls opened each time that it is given, which may be nil.
func (c *Client) Work(ctx context.Context, opened func()) {
	c.Want()
	defer c.Rest()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for closed := true; ctx.Err() == nil; <-ticker.C {
		was := closed
		if closed = c.Drain(); was && !closed && opened != nil {
			opened()
		}
	}
}
