// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
)

// DefaultPollInterval is how often the file is read where no event comes.
const DefaultPollInterval = 5 * time.Second

// Options of a Source.
type Options struct {
	// Path of the fleet file. It need not exist: no file is no cards.
	Path string
	// NodeName enters the UUIDs of cards that name none.
	NodeName string
	// Reserve is kept free on every card, on top of what the fleet reserves.
	Reserve card.MiB
	// PollInterval is how often a Watch reads the file even without an event,
	// for file systems that have none. Zero means DefaultPollInterval.
	PollInterval time.Duration
}

// Source gives the cards of a fleet file.
type Source struct{ opts Options }

var _ card.Source = (*Source)(nil)

// New gives a source. It does no I/O.
func New(o Options) *Source {
	if o.PollInterval <= 0 {
		o.PollInterval = DefaultPollInterval
	}
	return &Source{opts: o}
}

// Cards reads the fleet file. The error wraps ErrFleet where the file cannot be
// used, and ErrListing where the fleet asks for a failure.
func (s *Source) Cards(ctx context.Context) ([]card.Card, error) {
	fleet, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	cards := fleet.Present(s.opts.NodeName)
	for i := range cards {
		cards[i].Memory = max(cards[i].Memory-s.opts.Reserve, 0)
	}
	return cards, nil
}

// DeviceNode checks the device node that a real card would have. The error
// wraps ErrDeviceNodeMissing where the fleet says that it is missing, and
// ErrUnknownCard where there is no such card.
func (s *Source) DeviceNode(ctx context.Context, id card.UUID) error {
	fleet, err := s.load(ctx)
	if err != nil {
		return err
	}
	for _, p := range fleet.expand(s.opts.NodeName) {
		switch {
		case p.card.UUID != id || p.absent:
		case p.deviceNodeMissing:
			return fmt.Errorf("check device node of card %s: /dev/nvidia%d: %w", id, p.card.Minor, ErrDeviceNodeMissing)
		default:
			return nil
		}
	}
	return fmt.Errorf("check device node of card %s: fleet file %s: %w", id, s.opts.Path, ErrUnknownCard)
}

func (s *Source) load(ctx context.Context) (*Fleet, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list simulated cards: %w", err)
	}
	raw, err := os.ReadFile(s.opts.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Fleet{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list simulated cards: %w: %w", ErrFleet, err)
	}
	fleet, err := Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("list simulated cards: %w: %s: %w", ErrFleet, s.opts.Path, err)
	}
	if fleet.ListError != "" {
		return nil, fmt.Errorf("list simulated cards: %w: %s", ErrListing, fleet.ListError)
	}
	return fleet, nil
}
