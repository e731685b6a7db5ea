// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"syscall"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// rounds in which a launch is measured with and without a runtime in turn; the best counts.
const rounds = 5

// gate measures what a launch costs more than the bare driver's, on a driver that does
// nothing.
func gate() scenario {
	return scenario{"launch gate", true, func(ctx context.Context, _ *world, c contender) (rows []bench.Row, err error) {
		r, err := rig.New()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		for _, shares := range []int{1, 2} {
			row, err := gateOf(ctx, r, c, shares)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
		return rows, nil
	}}
}

// gateOf measures on a card with so many shares, of which all but one are idle.
func gateOf(ctx context.Context, r *rig.Rig, c contender, shares int) (bench.Row, error) {
	hollow, err := rig.Hollow()
	if err != nil {
		return bench.Row{}, err
	}
	made, err := r.Card(simcard.Config{Memory: 64 * 1024 * rig.MiB})
	if err != nil {
		return bench.Row{}, err
	}
	bare, err := r.Box(rig.BoxOptions{Driver: hollow, Bare: true, Cards: []*simcard.Card{made}})
	if err != nil {
		return bench.Row{}, err
	}
	other, err := gateBox(r, c, hollow, made, shares) //nolint:contextcheck // the rig has its own patience
	if err != nil {
		return bench.Row{}, err
	}
	var with, without []float64
	for range rounds {
		for box, into := range map[*sandbox.Box]*[]float64{other: &with, bare: &without} {
			who := contender{bare: true}
			if box == other {
				who = c
			}
			ns, err := who.launchTime(ctx, r, box)
			if err != nil {
				return bench.Row{}, err
			}
			*into = append(*into, ns)
		}
	}
	return bench.Row{
		Metric: fmt.Sprintf("added to a launch, %d on the card, p50", shares), Value: slices.Min(with) - slices.Min(without), Unit: "ns", Target: bench.AtMost(20),
		Reference: "HAMi-core 22 to 49, vgpu-manager 32 to 34",
		Source:    ownTarget + "; " + measured,
		Remark:    fmt.Sprintf("with %.1f, without %.1f", slices.Min(with), slices.Min(without)),
	}, nil
}

func gateBox(r *rig.Rig, c contender, hollow string, made *simcard.Card, shares int) (*sandbox.Box, error) {
	if !c.ours() {
		box, err := r.Box(rig.BoxOptions{Driver: hollow, Bare: c.library == "", Library: c.library, Cards: []*simcard.Card{made}})
		if err != nil {
			return nil, err
		}
		return box, c.cover(box)
	}
	if r.Arbiter() == nil {
		if _, err := r.StartArbiter(); err != nil {
			return nil, err
		}
	}
	var all []rig.Share
	for range shares {
		s, err := r.Share(made, 16*1024)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if err := r.Served(all...); err != nil {
		return nil, err
	}
	return r.Box(rig.BoxOptions{Driver: hollow}, all[0])
}

// launchTime is the median that the measuring client says first, in ns.
func (c contender) launchTime(ctx context.Context, r *rig.Rig, box *sandbox.Box) (float64, error) {
	preload, err := c.inBox(box)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(rig.Client("measure"), "0") // which stays until it was looked at
	cmd.Env = rig.Environment(c.environment(r.Dir, 0, tenant{cores: 50})...)
	p, err := rig.Start(box, cmd)
	if err != nil {
		return 0, err
	}
	line, err := p.Expect("time")
	if err == nil {
		err = loaded(p.PID, preload)
	}
	p.Signal(syscall.SIGKILL) //nolint:errcheck // it may have ended
	p.End()                   //nolint:errcheck // it was killed
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, p.Complaints())
	}
	ps, err := strconv.ParseFloat(line.Values["p50_ps"], 64)
	if err != nil {
		return 0, fmt.Errorf("read %q: %w", line.Text, err)
	}
	return ps / 1000, ctx.Err()
}
