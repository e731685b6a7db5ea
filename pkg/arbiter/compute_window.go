// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"slices"
	"time"

	"github.com/tranche-dra/tranche/pkg/lease"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

const (
	// shareWindow of work may be in flight of all processes of a share together,
	// shortestWindow of any one of them.
	shareWindow    = time.Millisecond
	shortestWindow = 100 * time.Microsecond
	// offlineWindow is shorter, because online work waits for it. Still less, and an
	// offline share with kernels of 0.05 ms does not keep the card busy.
	offlineWindow = 500 * time.Microsecond
	// aloneWindow is that of a share whose card nobody else has wanted for aloneAfter. Programs launch
	// ahead of what runs so that they can do other things meanwhile: with 1 ms of work in flight the card
	// is idle whenever they do so for longer. Who wants the card then waits for it once, which
	// is within the 20 ms in which idle compute is handed back; but not beside online shares, which may
	// have a request now and then.
	aloneWindow = 8 * time.Millisecond
	aloneAfter  = time.Second
)

// bound what processes of the share may have in flight.
func (t *tenant) bound(now lease.Time) {
	window := shareWindow
	switch {
	case t.Class == share.Offline:
		window = offlineWindow
	case t.alone != forever && now-t.alone >= aloneAfter && !t.besideOnline():
		window = aloneWindow
	}
	t.window = window
	each := uint64(max(window/time.Duration(max(t.busy, 1)), shortestWindow))
	if t.grant.Window.Load() != each {
		t.grant.Window.Store(each)
	}
}

// judgeAlone by the lease as it is made known: before the share is told that others want the card it
// has no more in flight than beside them.
func (t *tenant) judgeAlone(now lease.Time) {
	if t.word&(wire.LeaseState|wire.LeaseContended|wire.LeaseTell) != wire.LeaseOpen {
		t.alone = forever
	} else if t.alone == forever {
		t.alone = now
	}
	t.bound(now)
}

// besideOnline tells whether there is another share on the card that is online.
func (t *tenant) besideOnline() bool {
	return slices.ContainsFunc(t.lane.tenants, func(o *tenant) bool { return o != t && o.Class == share.Online })
}

// widen the windows of shares whose time has come.
func (c *compute) widen(now lease.Time) {
	for _, t := range c.tenants {
		if t.widensAt() <= now {
			t.bound(now)
		}
	}
}

// widensAt is when the share may have more in flight if nobody else wants the card until then.
func (t *tenant) widensAt() lease.Time {
	if t.alone == forever || !t.wants || t.Class == share.Offline || t.window == aloneWindow || t.besideOnline() {
		return forever
	}
	return t.alone + aloneAfter
}
