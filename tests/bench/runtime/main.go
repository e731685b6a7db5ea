// SPDX-License-Identifier: Apache-2.0

// Command runtime measures what the sharing runtime costs: nanoseconds for each
// call against the bare simulated driver in the same run, the start of processes,
// and how long it takes until the memory of a killed process is back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

func main() {
	out := flag.String("out", "build/bench", "directory of the report")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "bench runtime:", err)
		os.Exit(1)
	}
}

// place is what everything is measured in: one large share on a larger card, and
// pairs of boxes.
type place struct {
	rig   *rig.Rig
	share rig.Share
	// simulated has the simulated driver, hollow one that does nothing.
	simulated, hollow pair
	// leased has the hollow driver too, on a card of two shares.
	leased pair
}

// pair are two boxes that differ in the runtime only.
type pair struct{ ours, bare *sandbox.Box }

func newPlace() (place, error) {
	r, err := rig.New()
	if err != nil {
		return place{}, err
	}
	p := place{rig: r}
	if err := p.furnish(); err != nil {
		return place{}, errors.Join(err, r.Close())
	}
	return p, nil
}

func (p *place) furnish() error {
	if _, err := p.rig.StartArbiter(); err != nil {
		return err
	}
	card, err := p.rig.Card(simcard.Config{Memory: 131072 * rig.MiB, ContextBytes: 16 * rig.MiB})
	if err != nil {
		return err
	}
	if p.share, err = p.rig.Share(card, 65536); err != nil {
		return err
	}
	if err := p.rig.Served(p.share); err != nil {
		return err
	}
	if p.simulated, err = p.pair(card, ""); err != nil {
		return err
	}
	hollow, err := rig.Hollow()
	if err != nil {
		return err
	}
	if p.hollow, err = p.pair(card, hollow); err != nil {
		return err
	}
	return p.lease(hollow)
}

// lease makes two shares on a card of their own.
func (p *place) lease(driver string) error {
	card, err := p.rig.Card(simcard.Config{Memory: 131072 * rig.MiB, ContextBytes: 16 * rig.MiB})
	if err != nil {
		return err
	}
	var shares []rig.Share
	for range 2 {
		share, err := p.rig.Share(card, 65536)
		if err != nil {
			return err
		}
		shares = append(shares, share)
	}
	if err := p.rig.Served(shares...); err != nil {
		return err
	}
	p.leased, err = p.pairOf(card, shares[0], driver)
	return err
}

func (p *place) pair(card *simcard.Card, driver string) (pair, error) {
	return p.pairOf(card, p.share, driver)
}

func (p *place) pairOf(card *simcard.Card, share rig.Share, driver string) (pair, error) {
	ours, err := p.rig.Box(rig.BoxOptions{Driver: driver}, share)
	if err != nil {
		return pair{}, err
	}
	bare, err := p.rig.Box(rig.BoxOptions{Driver: driver, Bare: true, Cards: []*simcard.Card{card}})
	return pair{ours, bare}, err
}

func run(out string) (err error) {
	p, err := newPlace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.rig.Close()) }()
	ctx := context.Background()
	var rows []bench.Row
	for _, measure := range []func(context.Context) ([]bench.Row, error){p.calls, p.gated, p.contended, p.starts, p.returns} {
		more, err := measure(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	return bench.Report(os.Stdout, "runtime", out, rows)
}
