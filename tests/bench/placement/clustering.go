// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/replay"
	"github.com/tranche-dra/tranche/pkg/trace"
)

// clustering keeps tasks of one size together: shares, tasks of one card, of two, and so
// on. Best is a node with tasks of that size only, then one with others beside them,
// then an unused one, then one with others only; among these the one with least free.
type clustering struct {
	rival
	// sizes of the tasks on each node. They change only with the node itself.
	sizes map[*placement.Node]map[string]bool
}

func newClustering(*trace.Trace, uint64) replay.Placer {
	c := &clustering{sizes: map[*placement.Node]map[string]bool{}}
	c.score = func(n *placement.Node, d *placement.Demand) float64 {
		own := sizeOf(d)
		if own == "" {
			return 0
		}
		on, tier := c.sizes[n], 0.0
		switch {
		case on[own] && len(on) == 1:
			tier = 75
		case on[own]:
			tier = 50
		case len(on) == 0:
			tier = 25
		}
		return tier + 25*(1-free(n)/largestCompute)
	}
	return c
}

func (c *clustering) Choose(n *placement.Node, d *placement.Demand) (placement.Choice, bool) {
	choice, fits := c.rival.Choose(n, d)
	if own := sizeOf(d); fits && own != "" {
		if c.sizes[n] == nil {
			c.sizes[n] = map[string]bool{}
		}
		c.sizes[n][own] = true
	}
	return choice, fits
}

// sizeOf is empty for a task without cards.
func sizeOf(d *placement.Demand) string {
	switch {
	case len(d.Parts) == 0:
		return ""
	case !d.Parts[0].Whole:
		return "share"
	}
	return strconv.Itoa(d.Parts[0].Cards)
}
