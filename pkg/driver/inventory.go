// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
)

// listLimit is how long one listing may take. NVML needs some seconds where no
// process keeps the cards initialised, and never returns from a card that fell
// off its bus.
const listLimit = 15 * time.Second

// Inventory remembers the cards of the last good listing. A listing that fails
// takes no card away: what pods hold stays known. It is safe for concurrent use.
//
// A listing is bounded by listLimit, but a call into a driver that hangs cannot
// be ended: its goroutine is left behind. There is one such goroutine at most,
// for no other listing begins before it returns.
type Inventory struct {
	source card.Lister
	now    func() time.Time
	limit  time.Duration

	mu       sync.Mutex
	snapshot snapshot      // guarded by mu
	changed  chan struct{} // guarded by mu; closed and replaced at every change
	running  *listing      // guarded by mu; nil when none is under way
}

// snapshot is what is known at one moment. Its cards are never written to.
type snapshot struct {
	cards    []card.Card
	listedAt time.Time
	// err of the last listing; the cards are older then.
	err error
}

// listing is one that is under way.
type listing struct {
	// done is closed after err was set and the inventory knows the result.
	done chan struct{}
	err  error
	// late is closed when it took too long.
	late <-chan struct{}
}

// NewInventory makes an empty inventory. It does no I/O.
func NewInventory(source card.Lister) *Inventory {
	return &Inventory{source: source, now: time.Now, limit: listLimit, changed: make(chan struct{})}
}

// Refresh lists the cards again and returns what is known now. The error is
// that of the listing; the cards are the last good ones then. It wraps
// ErrListingHangs where the source does not answer in time, at once where it
// did not answer an earlier call yet, and ctx's error when ctx ends, which says
// nothing about the cards. An answer that comes too late is not lost.
func (i *Inventory) Refresh(ctx context.Context) ([]card.Card, error) {
	l := i.listing(ctx)
	var err error
	select {
	case <-l.done:
		err = l.err
	case <-ctx.Done():
		err = fmt.Errorf("list cards: %w", context.Cause(ctx))
	case <-l.late:
		err = i.hangs(l)
	}
	return i.Cards(), err
}

// listing joins the one that is under way, or begins one. It belongs to no
// caller: it goes on when the one who asked has gone.
func (i *Inventory) listing(ctx context.Context) *listing {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running != nil {
		return i.running
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.limit)
	l := &listing{done: make(chan struct{}), late: ctx.Done()}
	i.running = l
	go func() {
		defer cancel()
		cards, err := i.source.Cards(ctx)
		if err != nil {
			err = fmt.Errorf("list cards: %w", err)
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.learn(cards, err)
		i.running = nil
		l.err = err
		close(l.done)
	}()
	return l
}

// hangs takes note of a listing that takes too long, unless it ended just now.
func (i *Inventory) hangs(l *listing) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running != l {
		return l.err
	}
	err := fmt.Errorf("list cards: %w: it did not answer within %s", ErrListingHangs, i.limit)
	i.learn(nil, err)
	return err
}

// learn takes the result of a listing. The caller holds mu.
func (i *Inventory) learn(cards []card.Card, err error) {
	before := i.snapshot
	i.snapshot.err = err
	if err == nil {
		i.snapshot.cards = slices.SortedFunc(slices.Values(cards), byIndex)
		i.snapshot.listedAt = i.now()
	}
	if (before.err == nil) != (err == nil) || !reflect.DeepEqual(before.cards, i.snapshot.cards) {
		close(i.changed)
		i.changed = make(chan struct{})
	}
}

// listed tells whether there was a good listing ever: without one, no cards means
// that nothing is known.
func (i *Inventory) listed() bool {
	current, _ := i.current()
	return !current.listedAt.IsZero()
}

// Card finds a card by its published name.
func (i *Inventory) Card(device string) (card.Card, bool) {
	current, _ := i.current()
	for _, c := range current.cards {
		if c.DeviceName() == device {
			return c, true
		}
	}
	return card.Card{}, false
}

// Cards are the cards of the last good listing.
func (i *Inventory) Cards() []card.Card {
	current, _ := i.current()
	return slices.Clone(current.cards)
}

// current is what is known, and a channel that is closed when that changes.
func (i *Inventory) current() (snapshot, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.snapshot, i.changed
}

func byIndex(a, b card.Card) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
}
