// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
)

func TestInventoryKeepsTheLastGoodCards(t *testing.T) {
	t.Parallel()
	source := &scripted{}
	i := NewInventory(source)
	source.cards = []card.Card{{UUID: "GPU-b", Index: 1}, {UUID: "GPU-a"}}
	_, changed := i.current()
	got, err := i.Refresh(t.Context())
	require.NoError(t, err)
	require.Equal(t, []card.Card{{UUID: "GPU-a"}, {UUID: "GPU-b", Index: 1}}, got)
	require.True(t, isClosed(changed), "whoever waits is told")

	_, changed = i.current()
	_, err = i.Refresh(t.Context())
	require.NoError(t, err)
	require.False(t, isClosed(changed), "nothing changed")

	source.err = errors.New("broken")
	got, err = i.Refresh(t.Context())
	require.EqualError(t, err, "list cards: broken")
	require.Len(t, got, 2)
	require.True(t, isClosed(changed), "that nothing is known any more is a change")
	c, found := i.Card("gpu-b")
	require.True(t, found, "what claims hold stays known")
	require.Equal(t, 1, c.Index)
	_, found = i.Card("gpu-c")
	require.False(t, found)
	require.Len(t, i.Cards(), 2)
}

type scripted struct {
	cards []card.Card
	err   error
}

func (s *scripted) Cards(context.Context) ([]card.Card, error) { return s.cards, s.err }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stuck is a source whose calls do not return, whatever their context says,
// until they are let go.
type stuck struct {
	scripted
	calls atomic.Int32
	goOn  chan struct{}
}

func (s *stuck) Cards(ctx context.Context) ([]card.Card, error) {
	s.calls.Add(1)
	<-s.goOn
	return s.scripted.Cards(ctx)
}

func TestAListingThatHangsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &stuck{goOn: make(chan struct{}, 1)}
		source.cards = []card.Card{{UUID: "GPU-a"}}
		i := NewInventory(source)
		source.goOn <- struct{}{}
		_, err := i.Refresh(t.Context())
		require.NoError(t, err)

		_, changed := i.current()
		start := time.Now()
		for range 3 { // the later ones do not wait again
			got, err := i.Refresh(t.Context())
			require.ErrorIs(t, err, ErrListingHangs)
			require.EqualError(t, err, "list cards: the cards' driver hangs: it did not answer within 15s")
			require.Equal(t, source.cards, got, "what pods hold stays known")
			require.Equal(t, listLimit, time.Since(start))
		}
		require.EqualValues(t, 2, source.calls.Load(), "one call at most hangs")
		require.True(t, isClosed(changed), "that nothing is known any more is a change")
		known, changed := i.current()
		require.ErrorIs(t, known.err, ErrListingHangs)

		source.goOn <- struct{}{}
		synctest.Wait()
		require.True(t, isClosed(changed), "an answer that comes late is not lost")
		known, _ = i.current()
		require.NoError(t, known.err)
		source.goOn <- struct{}{}
		_, err = i.Refresh(t.Context())
		require.NoError(t, err)
	})
}

func TestWhoeverAsksForCardsNeedNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &stuck{goOn: make(chan struct{}, 1)}
		i := NewInventory(source)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := i.Refresh(ctx)
		require.ErrorIs(t, err, context.Canceled)
		known, _ := i.current()
		require.NoError(t, known.err, "it says nothing about the cards")
		source.goOn <- struct{}{}
		_, err = i.Refresh(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, source.calls.Load(), "the listing went on for the next who asks")
		require.True(t, i.listed(), "none is known to be there")
	})
}

func TestAListingThatIsGivenUpIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls int
		i := NewInventory(listerFunc(func(ctx context.Context) ([]card.Card, error) {
			calls++
			<-ctx.Done()
			return nil, ctx.Err()
		}))
		for n := range 2 {
			_, err := i.Refresh(t.Context())
			require.Error(t, err)
			synctest.Wait()
			require.Equal(t, n+1, calls)
		}
		require.False(t, i.listed())
	})
}

type listerFunc func(context.Context) ([]card.Card, error)

func (f listerFunc) Cards(ctx context.Context) ([]card.Card, error) { return f(ctx) }
