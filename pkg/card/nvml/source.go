// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	// DefaultPollInterval is how often the cards are queried where no event comes.
	DefaultPollInterval = 10 * time.Second
	// DefaultXIDHold is how long a card must be well after an XID error before
	// it is used again, where the driver cannot say whether it is.
	DefaultXIDHold = 10 * time.Minute
)

// Options of a Source.
type Options struct {
	// Open gives the library when it is to be loaded. Default: the one that is
	// installed under DriverRoot at that time.
	Open func() gonvml.Interface
	// DriverRoot is the directory that the driver is installed under, as this
	// process sees it. Empty is the root of the file system.
	DriverRoot string
	// SysfsRoot is where sysfs is mounted. Default /sys.
	SysfsRoot string
	// Reserve is kept free on every card, on top of what the driver keeps.
	Reserve card.MiB
	// PollInterval is how often a Watch queries the cards. Zero means
	// DefaultPollInterval.
	PollInterval time.Duration
	// XIDHold: see DefaultXIDHold, which zero means.
	XIDHold time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Source gives the NVIDIA cards of this machine.
type Source struct {
	opts Options

	// session is held for reading while NVML is called, and for writing while
	// it is started or ended: ending it under a call crashes the process.
	session    sync.RWMutex
	library    gonvml.Interface // loaded, or about to be; nil where it must be looked for
	started    bool
	generation int // counts starts: handles and event sets are of one session only

	mu    sync.Mutex
	count int               // cards at the last listing
	known map[int]card.Card // the last good answers, by index
	xids  map[card.UUID]xidMemory
	// sampled is the time of the latest sample of utilisation that was seen, as the
	// driver counts, by card.
	sampled map[card.UUID]uint64
}

var _ card.Source = (*Source)(nil)

// New gives a source. It does no I/O.
func New(o Options) *Source {
	if o.Open == nil {
		root := o.DriverRoot
		o.Open = func() gonvml.Interface { return Library(root) }
	}
	if o.SysfsRoot == "" {
		o.SysfsRoot = "/sys"
	}
	if o.PollInterval <= 0 {
		o.PollInterval = DefaultPollInterval
	}
	if o.XIDHold <= 0 {
		o.XIDHold = DefaultXIDHold
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Source{opts: o, known: map[int]card.Card{}, xids: map[card.UUID]xidMemory{}, sampled: map[card.UUID]uint64{}}
}

// Cards queries all cards. A machine without NVIDIA's driver has none. A query
// that a card does not support leaves that fact out; a card that does not
// answer any more is listed as last seen, with a fault. The error wraps
// ErrUnavailable and go-nvml's Return.
func (s *Source) Cards(ctx context.Context) ([]card.Card, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list NVIDIA cards: %w", err)
	}
	var cards []card.Card
	var answered bool
	generation, err := s.call(func(lib gonvml.Interface) (err error) {
		cards, answered, err = s.list(ctx, lib)
		return err
	})
	if errors.Is(err, errNoDriver) {
		klog.FromContext(ctx).V(4).Info("No NVIDIA cards", "reason", err.Error())
		return nil, nil
	}
	if err != nil || len(cards) == 0 || !answered {
		// NVML finds new cards, and cards that were reset, only when it is
		// started.
		s.end(generation)
	}
	if err != nil {
		return nil, fmt.Errorf("list NVIDIA cards: %w", err)
	}
	return cards, nil
}

// Close ends the session. A Source may be used again after it.
func (s *Source) Close() { s.end(s.currentGeneration()) }

func (s *Source) currentGeneration() int {
	s.session.RLock()
	defer s.session.RUnlock()
	return s.generation
}

// call runs f in a session, starting one where there is none, and tells which.
func (s *Source) call(f func(gonvml.Interface) error) (generation int, err error) {
	for {
		generation, err := s.callStarted(f)
		if generation > 0 {
			return generation, err
		}
		if err := s.start(); err != nil {
			return 0, err
		}
	}
}

// callStarted runs f in the session; without one it gives generation 0.
func (s *Source) callStarted(f func(gonvml.Interface) error) (generation int, err error) {
	s.session.RLock()
	defer s.session.RUnlock()
	if !s.started {
		return 0, nil
	}
	return s.generation, f(s.library)
}

func (s *Source) start() error {
	s.session.Lock()
	defer s.session.Unlock()
	if s.started {
		return nil
	}
	if s.library == nil {
		s.library = s.opts.Open()
	}
	switch ret := s.library.Init(); ret {
	case gonvml.SUCCESS:
	case gonvml.ERROR_LIBRARY_NOT_FOUND:
		s.library = nil // it may be installed elsewhere next time
		return fmt.Errorf("start NVML: %w: %w", errNoDriver, ret)
	case gonvml.ERROR_DRIVER_NOT_LOADED, gonvml.ERROR_GPU_NOT_FOUND:
		return fmt.Errorf("start NVML: %w: %w", errNoDriver, ret)
	case gonvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("start NVML: %w: %w: the driver was replaced, restart this process or the machine", ErrUnavailable, ret)
	default:
		return fmt.Errorf("start NVML: %w: %w", ErrUnavailable, ret)
	}
	s.started = true
	s.generation++
	return nil
}

// end ends the session of that generation, if it is still the current one.
func (s *Source) end(generation int) {
	s.session.Lock()
	defer s.session.Unlock()
	if !s.started || s.generation != generation {
		return
	}
	_ = s.library.Shutdown() // a session that cannot be ended is none any more
	s.started = false
}

// list queries all cards in a session, and tells whether all of them answered.
func (s *Source) list(ctx context.Context, lib gonvml.Interface) (cards []card.Card, answered bool, err error) {
	count, ret := lib.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return nil, false, fmt.Errorf("count cards: %w: %w", ErrUnavailable, ret)
	}
	s.expect(count)
	common := s.systemFacts(ctx, lib)
	cards, answered = make([]card.Card, 0, count), true
	for i := range count {
		c, h, ret := s.describe(ctx, lib, i, common)
		switch ret {
		case gonvml.SUCCESS:
		case gonvml.ERROR_UNINITIALIZED, gonvml.ERROR_DRIVER_NOT_LOADED, gonvml.ERROR_LIB_RM_VERSION_MISMATCH:
			return nil, false, fmt.Errorf("query card with index %d: %w: %w", i, ErrUnavailable, ret)
		default:
			answered = false
		}
		if c, there := s.recognise(ctx, i, c, h, ret); there {
			cards = append(cards, c)
		}
	}
	return cards, answered, nil
}

// expect forgets what was at which index where the number of cards changed: the
// indices may have moved.
func (s *Source) expect(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count != count {
		clear(s.known)
	}
	s.count = count
}

// recognise gives the card at an index with its faults. One that does not
// answer is given as last seen; one that never did cannot be named.
func (s *Source) recognise(ctx context.Context, index int, c card.Card, h health, ret gonvml.Return) (card.Card, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ret == gonvml.SUCCESS {
		s.known[index] = c
	} else {
		old, seen := s.known[index]
		if !seen {
			klog.FromContext(ctx).Error(ret, "A card does not answer and is left out: it was not seen before", "index", index)
			return card.Card{}, false
		}
		c, h = old, unanswered(ret)
	}
	c.Faults = slices.Concat(h.faults, s.recall(c.UUID, h))
	return c, true
}
