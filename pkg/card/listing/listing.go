// SPDX-License-Identifier: Apache-2.0

// Package listing compares what a card source told at two moments. Sources use
// it to say only what matters to those who watch them. It holds no state.
package listing

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Reasons of events.
const (
	Watching = "watching"
	Added    = "added"
	Removed  = "removed"
	Changed  = "changed"
	Fault    = "fault"
	Recovery = "recovery"
)

// Listing is what a source told: cards, or an error.
type Listing struct {
	cards map[card.UUID]card.Card
	err   string
}

// Of what a Lister returned.
func Of(cards []card.Card, err error) Listing {
	l := Listing{cards: make(map[card.UUID]card.Card, len(cards))}
	if err != nil {
		l.err = err.Error()
	}
	for _, c := range cards {
		l.cards[c.UUID] = c
	}
	return l
}

// Take asks the lister.
func Take(ctx context.Context, from card.Lister) Listing { return Of(from.Cards(ctx)) }

// Since gives what is different from before as events, sorted by card. A
// listing that failed says nothing about single cards.
func (l Listing) Since(before Listing) []card.Event {
	switch {
	case before.err == "" && l.err == "":
	case before.err == l.err:
		return nil
	case l.err == "":
		return []card.Event{{Reason: Recovery}}
	default:
		return []card.Event{{Reason: Fault}}
	}
	reasons := map[card.UUID]string{}
	for id := range before.cards {
		if _, there := l.cards[id]; !there {
			reasons[id] = Removed
		}
	}
	for id, now := range l.cards {
		old, there := before.cards[id]
		switch {
		case !there:
			reasons[id] = Added
		case reflect.DeepEqual(old, now):
		case len(now.Faults) > len(old.Faults):
			reasons[id] = Fault
		case len(now.Faults) < len(old.Faults):
			reasons[id] = Recovery
		default:
			reasons[id] = Changed
		}
	}
	var events []card.Event
	for _, id := range slices.Sorted(maps.Keys(reasons)) {
		events = append(events, card.Event{Reason: reasons[id], Card: id})
	}
	return events
}
