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

// Inventory remembers the cards of the last good listing. A listing that fails
// takes no card away: what pods hold stays known. It is safe for concurrent use.
type Inventory struct {
	source card.Lister
	now    func() time.Time

	mu       sync.Mutex
	snapshot snapshot      // guarded by mu
	changed  chan struct{} // guarded by mu; closed and replaced at every change
}

// snapshot is what is known at one moment. Its cards are never written to.
type snapshot struct {
	cards    []card.Card
	listedAt time.Time
	// err of the last listing; the cards are older then.
	err error
}

// NewInventory makes an empty inventory. It does no I/O.
func NewInventory(source card.Lister) *Inventory {
	return &Inventory{source: source, now: time.Now, changed: make(chan struct{})}
}

// Refresh lists the cards again and returns what is known now. The error is
// that of the listing; the cards are the last good ones then.
func (i *Inventory) Refresh(ctx context.Context) ([]card.Card, error) {
	cards, err := i.source.Cards(ctx)
	if err != nil {
		err = fmt.Errorf("list cards: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
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
	return i.snapshot.cards, err
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
