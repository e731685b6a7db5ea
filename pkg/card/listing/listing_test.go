// SPDX-License-Identifier: Apache-2.0

package listing_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/listing"
)

type source struct {
	cards []card.Card
	err   error
}

func (s source) Cards(context.Context) ([]card.Card, error) { return s.cards, s.err }

func TestSince(t *testing.T) {
	t.Parallel()
	well := func(ids ...card.UUID) source {
		s := source{}
		for _, id := range ids {
			s.cards = append(s.cards, card.Card{UUID: id, Memory: 1024})
		}
		return s
	}
	ill := func(faults ...card.Fault) source {
		return source{cards: []card.Card{{UUID: "a", Memory: 1024, Faults: faults}}}
	}
	failing := func(what string) source { return source{err: errors.New(what)} }
	x, y := card.Fault{Kind: "X"}, card.Fault{Kind: "Y"}
	for name, tc := range map[string]struct {
		before, after source
		want          []card.Event
	}{
		"nothing happened":                     {well("a", "b"), well("b", "a"), nil},
		"a card came":                          {well("a"), well("a", "b"), []card.Event{{Reason: "added", Card: "b"}}},
		"a card went":                          {well("a", "b"), well("b"), []card.Event{{Reason: "removed", Card: "a"}}},
		"all is different, sorted by card":     {well("a", "c"), well("b", "d"), []card.Event{{Reason: "removed", Card: "a"}, {Reason: "added", Card: "b"}, {Reason: "removed", Card: "c"}, {Reason: "added", Card: "d"}}},
		"a card failed":                        {well("a"), ill(x), []card.Event{{Reason: "fault", Card: "a"}}},
		"a card is well again":                 {ill(x), well("a"), []card.Event{{Reason: "recovery", Card: "a"}}},
		"another fault stands":                 {ill(x), ill(y), []card.Event{{Reason: "changed", Card: "a"}}},
		"listing began to fail":                {well("a"), failing("e"), []card.Event{{Reason: "fault"}}},
		"listing fails as before":              {failing("e"), failing("e"), nil},
		"listing fails in another way":         {failing("e"), failing("f"), []card.Event{{Reason: "fault"}}},
		"listing works again with other cards": {failing("e"), well("a"), []card.Event{{Reason: "recovery"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := listing.Take(t.Context(), tc.before), listing.Take(t.Context(), tc.after)
			require.Equal(t, tc.want, after.Since(before))
		})
	}
}
