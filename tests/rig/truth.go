// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tranche-dra/tranche/pkg/simcard"
)

// tenant is what boxes with the same shares on a card are together.
type tenant struct {
	name  string
	limit uint64
}

// tenants tells whose a process is. It remembers processes by their slot and start.
type tenants struct {
	rig  *Rig
	card *simcard.Card

	mu    sync.Mutex
	known map[[2]int64]tenant
}

func (r *Rig) tenantsOf(c *simcard.Card) *tenants {
	return &tenants{rig: r, card: c, known: map[[2]int64]tenant{}}
}

// of gives the tenant of a living process, an empty one where it is gone or runs
// outside of all boxes with shares.
func (t *tenants) of(s simcard.Slot) tenant {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := [2]int64{int64(s.Number), int64(s.Started)}
	if known, ok := t.known[id]; ok {
		return known
	}
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", s.PID))
	if err != nil {
		return tenant{}
	}
	found := t.rig.tenant(namespace, t.card)
	if s.Started != 0 {
		t.known[id] = found
	}
	return found
}

// tenant of a box on a card. Shares of one card in one box add up.
func (r *Rig) tenant(namespace string, c *simcard.Card) tenant {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []string
	limit := uint64(0)
	for _, s := range r.tenants[namespace] {
		if s.Card == c {
			keys = append(keys, string(s.Key))
			limit += s.Limit
		}
	}
	slices.Sort(keys)
	return tenant{strings.Join(keys, "+"), limit}
}

// Watcher samples a card's truth until it is stopped.
type Watcher struct {
	cancel context.CancelFunc
	done   chan struct{}
	report simcard.Report
	err    error
}

// Watch begins to sample a card.
func (r *Rig) Watch(c *simcard.Card) *Watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watcher{cancel: cancel, done: make(chan struct{})}
	whose := r.tenantsOf(c)
	go func() {
		defer close(w.done)
		w.report, w.err = c.Watch(ctx, 500*time.Microsecond, func(s simcard.Slot) (string, uint64) {
			t := whose.of(s)
			return t.name, t.limit
		})
	}()
	return w
}

// Stop ends the sampling and is an error where a limit was passed.
func (w *Watcher) Stop() (simcard.Report, error) {
	w.cancel()
	<-w.done
	if w.err != nil {
		return w.report, w.err
	}
	if w.report.Samples == 0 {
		return w.report, errors.New("the card was not sampled once")
	}
	if n := len(w.report.Violations); n > 0 {
		return w.report, fmt.Errorf("limits were passed in %d of %d samples, first: %s", n, w.report.Samples, w.report.Violations[0])
	}
	return w.report, nil
}

// Held is what the living processes of the boxes with these shares hold of the
// card that the shares are on.
func (r *Rig) Held(shares ...Share) (uint64, error) {
	truth, err := shares[0].Card.Truth()
	if err != nil {
		return 0, err
	}
	whose, wanted := r.tenantsOf(shares[0].Card), make([]string, 0, len(shares))
	for _, s := range shares {
		wanted = append(wanted, string(s.Key))
	}
	slices.Sort(wanted)
	sum := uint64(0)
	for _, s := range truth.Slots {
		if s.Alive && whose.of(s).name == strings.Join(wanted, "+") {
			sum += s.Total()
		}
	}
	return sum, nil
}

// Settled waits until the ledgers of shares, all of one box and card, say together
// what the card holds for their processes, and nobody is between asking and
// having. It returns that amount. Nobody may be at work meanwhile.
func (r *Rig) Settled(shares ...Share) (held uint64, err error) {
	books := make([]*Ledger, 0, len(shares))
	for _, s := range shares {
		book, openErr := OpenLedger(context.Background(), s)
		if openErr != nil {
			return 0, openErr
		}
		defer book.Close() //nolint:errcheck,gocritic,revive // all at the end
		books = append(books, book)
	}
	err = Until("ledger and truth to agree", func() (bool, error) {
		if held, err = r.Held(shares...); err != nil {
			return false, err
		}
		charge, quiet := uint64(0), true
		for _, book := range books {
			charge += book.Charge()
			quiet = quiet && book.Quiet()
		}
		if charge == held && quiet {
			return true, nil
		}
		return false, fmt.Errorf("the card holds %d bytes, charged are %d: %v", held, charge, books)
	})
	return held, err
}

// Audit frees on a card what dead processes left, as the driver does when it needs
// room, and tells whether the card's books agree with each other. Nobody may be at
// work meanwhile.
func (r *Rig) Audit(c *simcard.Card) error {
	reap := exec.Command(filepath.Join(r.native, "bin", "tranche-simcard"), "reap", "--dir", r.cardsDir(), string(c.Config().UUID))
	if out, err := reap.CombinedOutput(); err != nil {
		return fmt.Errorf("free what dead processes left: %w: %s", err, out)
	}
	return c.Audit()
}
