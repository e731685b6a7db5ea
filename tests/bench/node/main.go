// SPDX-License-Identifier: Apache-2.0

// Command node measures the node driver without a cluster: how long preparing
// and unpreparing take on a real file system with every fsync in place, beside a
// real tranche-arbiter that has to serve each share first, what publishing costs,
// and how fast claims are decoded.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/probe"
	"github.com/tranche-dra/tranche/pkg/share"
	published "github.com/tranche-dra/tranche/pkg/slices"
	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/fixture"
)

const (
	cards = 8
	// sharesHeld are there before anything is measured: 7 of 8 cards are full.
	sharesHeld = 112
)

func main() {
	out := flag.String("out", "build/bench", "directory of the report")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "bench node:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	// Not the system's temporary directory: that may be in memory, where fsync is free.
	dir, err := os.MkdirTemp(out, "node-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // scratch
	rows, err := prepareRows(dir)
	if err != nil {
		return err
	}
	rows = append(rows, decodeRows()...)
	publish, err := publishRows()
	if err != nil {
		return err
	}
	return bench.Report(os.Stdout, "node", out, append(rows, publish...))
}

// prepareRows measures on a node that holds 112 shares already.
func prepareRows(dir string) ([]bench.Row, error) {
	ctx := context.Background()
	node, err := fixture.NewNode(dir, cards, "boot", durable.Files{})
	if err != nil {
		return nil, err
	}
	stop, err := startArbiter(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	node.Arbiter = probe.Arbiter{Patience: arbiterPatience}
	for i := range sharesHeld {
		if _, err := node.Prepare(ctx, oneShare(fmt.Sprint("held-", i), i/16)); err != nil {
			return nil, err
		}
	}
	write, err := durableWrite(dir)
	if err != nil {
		return nil, err
	}
	rows := []bench.Row{{
		Metric: "one durable file (write, fsync, rename, fsync), p50", Value: bench.Milliseconds(bench.Percentile(write, 50)), Unit: "ms",
		Source: "this machine, to judge the rows below",
	}}
	// Enough rounds that the 99th percentile is not the longest of all.
	for _, load := range []struct{ atOnce, rounds int }{{1, 200}, {16, 40}} {
		prepared, unprepared, err := measure(ctx, node, load.atOnce, load.rounds)
		if err != nil {
			return nil, err
		}
		for _, verb := range []struct {
			name  string
			times []time.Duration
		}{{"prepare", prepared}, {"unprepare", unprepared}} {
			for _, p := range []int{50, 99} {
				row := bench.Row{
					Metric: fmt.Sprintf("%s, %d at once, %d shares held, p%d", verb.name, load.atOnce, sharesHeld, p),
					Value:  bench.Milliseconds(bench.Percentile(verb.times, p)), Unit: "ms",
					Reference: fmt.Sprintf("%.1f durable files", float64(bench.Percentile(verb.times, p))/float64(bench.Percentile(write, 50))),
					Source:    "reference: the first row of this run",
				}
				if p == 99 {
					row.Target = bench.AtMost(20)
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

func oneShare(name string, on int) *resourceapi.ResourceClaim {
	return fixture.Claim(name, fixture.Result{Request: "gpu", Card: on, Cores: 5, Memory: "1Gi"})
}

// measure prepares and unprepares claims, atOnce at the same time, all on the
// last card, in as many rounds.
func measure(ctx context.Context, node *fixture.Node, atOnce, rounds int) (prepared, unprepared []time.Duration, err error) {
	for round := range rounds {
		batch := make([]*resourceapi.ResourceClaim, atOnce)
		for i := range batch {
			batch[i] = oneShare(fmt.Sprintf("b%d-%d-%d", atOnce, round, i), cards-1)
		}
		p, err := all(batch, func(c *resourceapi.ResourceClaim) error { _, err := node.Prepare(ctx, c); return err })
		if err != nil {
			return nil, nil, err
		}
		u, err := all(batch, func(c *resourceapi.ResourceClaim) error { return node.Unprepare(ctx, claims.Of(c)) })
		if err != nil {
			return nil, nil, err
		}
		prepared, unprepared = append(prepared, p...), append(unprepared, u...)
	}
	return prepared, unprepared, nil
}

// all runs do for every claim at the same time and returns how long each took.
func all(batch []*resourceapi.ResourceClaim, do func(*resourceapi.ResourceClaim) error) ([]time.Duration, error) {
	times := make([]time.Duration, len(batch))
	errs := make([]error, len(batch))
	var wait sync.WaitGroup
	for i, claim := range batch {
		wait.Go(func() {
			start := time.Now()
			errs[i] = do(claim)
			times[i] = time.Since(start)
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return times, nil
}

func durableWrite(dir string) ([]time.Duration, error) {
	var times []time.Duration
	for i := range 50 {
		start := time.Now()
		if _, err := (durable.Files{}).Write(filepath.Join(dir, "probe"), fmt.Append(nil, i), 0o600); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

func decodeRows() []bench.Row {
	known := map[string]card.Card{}
	for i := range cards {
		known[fixture.Card(i).DeviceName()] = fixture.Card(i)
	}
	node := claims.Node{
		Driver: fixture.Driver, Pool: fixture.Pool, DefaultPolicy: claims.Always(share.GuaranteedBurst),
		Card: func(device string) (card.Card, bool) { c, ok := known[device]; return c, ok },
	}
	claim := oneShare("decode", 0)
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := claims.Decode(claim, node); err != nil {
				b.Fatal(err)
			}
		}
	})
	return []bench.Row{{
		Metric: "claims decoded, one share each", Value: float64(time.Second) / float64(result.NsPerOp()), Unit: "claims/s",
		Source: "no figure of others is known",
	}}
}

func publishRows() ([]bench.Row, error) {
	var rows []bench.Row
	for _, n := range []int{8, 64} {
		fleet := make([]card.Card, 0, n)
		for i := range n {
			fleet = append(fleet, fixture.Card(i))
		}
		options := published.Options{NodeName: fixture.Pool, Slots: 16, Shareable: true}
		result := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				published.Build(fleet, options)
			}
		})
		built, _ := published.Build(fleet, options)
		data, err := json.Marshal(built)
		if err != nil {
			return nil, err
		}
		rows = append(rows,
			bench.Row{
				Metric: fmt.Sprintf("publish: build the slices of %d cards", n),
				Value:  float64(result.NsPerOp()) / 1000, Unit: "µs", Source: "no figure of others is known",
			},
			bench.Row{
				Metric: fmt.Sprintf("publish: size of the slices of %d cards", n),
				Value:  float64(len(data)) / 1024, Unit: "KiB", Source: "the API server takes 1.5 MiB an object",
			})
	}
	return rows, nil
}
