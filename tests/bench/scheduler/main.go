// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures how fast pods with shares are scheduled in a large
// cluster: tranche-scheduler against the stock kube-scheduler, with the same
// API server, nodes, slices, shares and pods. It runs inside the cluster of
// tests/cluster ("make bench-scheduler").
//
// Nodes are objects only, and their kubelets do nothing: what is measured ends
// with the binding. Each scheduler is started anew with a burst of pods that
// wait for it, in turns with the other one, and every time the shares that it
// gave are checked against the cards.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tranche-dra/tranche/tests/bench"
)

// options are the flags.
type options struct {
	world
	burst, steady   int
	rate            float64
	misfits, rounds int
	stock, tranche  string
	config, profile string
	only, out       string
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		err = run(ctx, o)
		cancel()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench scheduler:", err)
		os.Exit(1)
	}
}

func parse(args []string, w io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench scheduler", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.IntVar(&o.nodes, "nodes", 1000, "simulated nodes")
	flags.IntVar(&o.cards, "cards", 8, "cards of each node")
	flags.IntVar(&o.shares, "shares", 10_000, "shares that are held when a burst comes")
	flags.IntVar(&o.burst, "pods", 500, "pods of a burst, each with a share")
	flags.IntVar(&o.steady, "steady", 100, "pods after a burst, one after the other, each with a share")
	flags.Float64Var(&o.rate, "rate", 5, "how many of these come in a second; it should be fewer than either scheduler can do")
	flags.IntVar(&o.misfits, "misfits", 20, "pods at the end that want all cards of a node, where no node has them")
	flags.IntVar(&o.rounds, "rounds", 2, "bursts for each scheduler")
	short := flags.Bool("short", false, "50 nodes, 500 shares and one burst of 100 pods, to try it out")
	flags.StringVar(&o.stock, "stock", filepath.Join(os.Getenv("TRANCHE_CLUSTER_BINARIES"), "kube-scheduler"), "the stock kube-scheduler")
	flags.StringVar(&o.tranche, "tranche", "build/bin/tranche-scheduler", "tranche-scheduler")
	flags.StringVar(&o.config, "tranche-config", "", "configuration of tranche-scheduler (required to measure it)")
	flags.StringVar(&o.profile, "tranche-profile", "default-scheduler", "profile of that configuration that the pods ask for")
	flags.StringVar(&o.only, "only", "", "measure this one alone: stock or tranche")
	flags.StringVar(&o.out, "out", "build/bench", "directory of the report")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *short {
		o.nodes, o.shares, o.burst, o.steady, o.rate, o.rounds = 50, 500, 100, 60, 20, 1
	}
	if o.rate <= 0 {
		return o, fmt.Errorf("read flag -rate: %v: want more than 0", o.rate)
	}
	if o.shares < o.nodes {
		return o, fmt.Errorf("read flag -shares: %d: want at least one for each of %d nodes", o.shares, o.nodes)
	}
	for name, value := range map[string]int{"nodes": o.nodes, "cards": o.cards, "pods": o.burst, "steady": o.steady, "misfits": o.misfits, "rounds": o.rounds} {
		if value < 1 {
			return o, fmt.Errorf("read flag -%s: %d: want at least 1", name, value)
		}
	}
	if !slices.Contains([]string{"", stock, tranche}, o.only) {
		return o, fmt.Errorf("read flag -only: %q: want %s or %s", o.only, stock, tranche)
	}
	return o, nil
}

// The contenders' names.
const (
	stock   = "stock"
	tranche = "tranche"
)

// contenders are what is measured, the reference first.
func (o options) contenders() ([]contender, error) {
	var all []contender
	if o.only != tranche {
		all = append(all, contender{name: stock, program: o.stock, profile: "default-scheduler"})
	}
	if o.only != stock {
		config, err := os.ReadFile(o.config)
		if err != nil {
			return nil, fmt.Errorf("read configuration of tranche-scheduler: %w", err)
		}
		all = append(all, contender{name: tranche, program: o.tranche, profile: o.profile, written: config})
	}
	for i := range all {
		if _, err := os.Stat(all[i].program); err != nil {
			return nil, fmt.Errorf("find the scheduler %s: %w", all[i].name, err)
		}
	}
	return all, nil
}

func run(ctx context.Context, o options) error {
	contenders, err := o.contenders()
	if err != nil {
		return err
	}
	c, err := connect()
	if err != nil {
		return err
	}
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	if err := c.prepare(ctx, o.world); err != nil {
		return err
	}
	say("%d nodes with %d cards each, %d shares held", o.nodes, o.cards, o.shares)
	results := map[string]*result{}
	for _, one := range contenders {
		results[one.name] = &result{}
	}
	for round := range o.rounds {
		// There and back, so that none has always the younger API server.
		for _, one := range contenders {
			got, err := c.round(ctx, one, o, uint64(round))
			if err != nil {
				return fmt.Errorf("measure %s: %w", one.name, err)
			}
			results[one.name].add(got)
			say("%s, burst %d: %.1f pods/s", one.name, round+1, got.podsPerSecond())
		}
		slices.Reverse(contenders)
	}
	return bench.Report(os.Stdout, "scheduler", o.out, rows(o, results))
}
