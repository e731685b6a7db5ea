// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
	"github.com/tranche-dra/tranche/pkg/simcard"
)

// newCards reads NVIDIA cards. Nothing is loaded before a card is read.
func newCards(c config) *nvml.Source {
	options := nvml.Options{DriverRoot: c.driverRootMount}
	if c.nvmlLibrary != "" {
		options.Open = nvml.OpenerOf(c.nvmlLibrary)
	}
	return nvml.New(options)
}

// simulatedCards reads the truth of simulated cards.
type simulatedCards struct {
	dir string

	mu   sync.Mutex
	open map[card.UUID]openCard // guarded by mu
}

// openCard stays open; a card that was made anew is another file.
type openCard struct {
	*simcard.Card
	file os.FileInfo
	// computed at the last call of Computed, and when that was.
	computed map[simulatedProcess]time.Duration
	at       time.Time
}

// simulatedProcess is one of all that had a number.
type simulatedProcess struct {
	pid     int
	started time.Duration
}

var (
	_ arbiter.Usage        = (*simulatedCards)(nil)
	_ arbiter.ComputeUsage = (*simulatedCards)(nil)
	_ arbiter.ContextSizes = (*simulatedCards)(nil)
	_ arbiter.Keeper       = (*simulatedCards)(nil)
	_ arbiter.Keeper       = (*nvml.Source)(nil)
	_ arbiter.ComputeUsage = (*nvml.Source)(nil)
)

func newSimulatedCards(dir string) *simulatedCards {
	return &simulatedCards{dir: dir, open: map[card.UUID]openCard{}}
}

// Processes implements arbiter.Usage.
func (s *simulatedCards) Processes(_ context.Context, id card.UUID) ([]card.ProcessMemory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.card(id)
	if err != nil {
		return nil, err
	}
	truth, err := reading(c, c.Truth)
	if err != nil {
		delete(s.open, id)
		return nil, errors.Join(err, c.Close())
	}
	var processes []card.ProcessMemory
	for _, slot := range truth.Slots {
		if slot.Alive && slot.PID > 0 {
			processes = append(processes, card.ProcessMemory{PID: slot.PID, Bytes: slot.Total()})
		}
	}
	return processes, nil
}

// Computed implements arbiter.ComputeUsage.
func (s *simulatedCards) Computed(_ context.Context, id card.UUID) ([]card.ProcessCompute, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.card(id)
	if err != nil {
		return nil, err
	}
	truth, err := reading(c, c.Truth)
	if err != nil {
		delete(s.open, id)
		return nil, errors.Join(err, c.Close())
	}
	known, now := s.open[id], time.Now()
	before, passed := known.computed, now.Sub(known.at)
	known.computed, known.at = map[simulatedProcess]time.Duration{}, now
	var processes []card.ProcessCompute
	for _, slot := range truth.Slots {
		if !slot.Alive || slot.PID <= 0 {
			continue
		}
		p := simulatedProcess{slot.PID, slot.Started}
		known.computed[p] = slot.Busy
		if busy := slot.Busy - before[p]; before != nil && busy > 0 {
			processes = append(processes, card.ProcessCompute{PID: slot.PID, Part: min(1, float64(busy)/float64(passed))})
		}
	}
	s.open[id] = known
	return processes, nil
}

// Kept implements arbiter.Keeper.
func (s *simulatedCards) Kept(_ context.Context, id card.UUID) (bytes uint64, exact bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.card(id)
	if err != nil {
		return 0, false, err
	}
	bytes, err = reading(c, c.Kept)
	return bytes, true, err
}

// reading reads a card. Whoever has it can make its file shorter, which makes
// reading the mapping fail; that is an error here, and not the end of the process.
func reading[T any](c *simcard.Card, read func() (T, error)) (what T, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("read simulated card %s: %v", c.Path(), fault)
		}
	}()
	return read()
}

// ContextBytes implements arbiter.ContextSizes.
func (s *simulatedCards) ContextBytes(id card.UUID) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.card(id)
	if err != nil {
		return 0, err
	}
	return c.Config().ContextBytes, nil
}

// card gives the open card. The caller has mu.
func (s *simulatedCards) card(id card.UUID) (*simcard.Card, error) {
	path := simcard.Path(s.dir, id)
	file, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find simulated card: %w", err)
	}
	known, ok := s.open[id]
	if ok && os.SameFile(known.file, file) {
		return known.Card, nil
	}
	if ok {
		delete(s.open, id)
		err = known.Close()
	}
	opened, openErr := simcard.Open(path)
	if err := errors.Join(err, openErr); err != nil {
		return nil, err
	}
	s.open[id] = openCard{Card: opened, file: file}
	return opened, nil
}

// close lets go of all cards.
func (s *simulatedCards) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for id, c := range s.open {
		err = errors.Join(err, c.Close())
		delete(s.open, id)
	}
	return err
}
