// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/share"
)

// rescan is how often all shares are looked at, whatever was noticed.
const rescan = 10 * time.Second

// run wires everything together and serves until ctx ends. The error is why the
// process cannot go on.
func run(ctx context.Context, c config) (err error) {
	klog.FromContext(ctx).Info("Starting", "version", version, "state", c.stateDir, "run", c.runDir)
	simulated := newSimulatedCards(c.cardsDir)
	defer func() { err = errors.Join(err, simulated.close()) }()
	cards := newCards(c)
	defer cards.Close()
	a := arbiter.New(arbiter.Config{
		SharesDir: filepath.Join(c.stateDir, "shares"), RunDir: filepath.Join(c.runDir, "arbiter"),
		ContextEstimate: c.contextEstimate, Rescan: rescan,
	}, arbiter.Dependencies{Cards: cards, SimulatedCards: simulated, Events: logged{}, Recorder: logged{}})
	return a.Run(ctx)
}

// logged is for what nobody else is told.
type logged struct{}

// Claim implements arbiter.Events.
func (logged) Claim(share.Claim, string, string) {}

// Node implements arbiter.Events.
func (logged) Node(string, string) {}

// Reaped implements arbiter.Recorder.
func (logged) Reaped(time.Duration) {}
