// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"math"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/trace"
)

// Placer decides where a task goes. placement.Policies is one. What it says of a
// node must depend on nothing but the node and the demand: it is asked again only
// when the node has changed.
type Placer interface {
	// Score of the node for the demand, higher is better; false where it does
	// not fit.
	Score(n *placement.Node, d *placement.Demand) (float64, bool)
	// Choose the cards on the node with the best score.
	Choose(n *placement.Node, d *placement.Demand) (placement.Choice, bool)
}

// Point is how much had been asked for and how much of it was placed, both as
// parts of all compute of the cluster.
type Point struct {
	Arrived   float64 `json:"arrived"`
	Allocated float64 `json:"allocated"`
}

// Result of one replay.
type Result struct {
	// Points at every hundredth of the cluster that had arrived, the last at the
	// end.
	Points []Point
	// Placed and Dropped count tasks by kind.
	Placed, Dropped []int
	// Nodes as they are in the end.
	Nodes []placement.Node
}

// At is what was allocated when that part of the cluster had arrived, between the
// points that lie around it; the last point where no more arrived.
func (r *Result) At(arrived float64) float64 {
	before := Point{}
	for _, p := range r.Points {
		if p.Arrived >= arrived {
			if p.Arrived == before.Arrived {
				return p.Allocated
			}
			return before.Allocated + (p.Allocated-before.Allocated)*(arrived-before.Arrived)/(p.Arrived-before.Arrived)
		}
		before = p
	}
	return before.Allocated
}

// verdict on a node for one kind of task, as long as the node stays as it is.
type verdict struct {
	score float64
	// version of the node that was looked at; 0 for none.
	version uint32
}

// impossible is the score of a node that a task does not fit on.
var impossible = math.Inf(-1)

// cluster is the nodes with what is known of them.
type cluster struct {
	nodes    []placement.Node
	versions []uint32
	rank     []int
	verdicts [][]verdict
}

// Run replays the arrivals. Its only error is that the context has ended.
func Run(ctx context.Context, t *trace.Trace, arrivals trace.Arrivals, placer Placer) (Result, error) {
	c := newCluster(t, arrivals.Rank)
	result := Result{Placed: make([]int, len(t.Kinds)), Dropped: make([]int, len(t.Kinds))}
	total := float64(t.Compute())
	var arrived, allocated int64
	for _, k := range arrivals.Kinds {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		d := &t.Kinds[k]
		arrived += d.Compute()
		if c.place(k, d, placer) {
			result.Placed[k]++
			allocated += d.Compute()
		} else {
			result.Dropped[k]++
		}
		if float64(arrived) >= total*float64(len(result.Points)+1)/100 {
			result.Points = append(result.Points, Point{float64(arrived) / total, float64(allocated) / total})
		}
	}
	if total > 0 {
		result.Points = append(result.Points, Point{float64(arrived) / total, float64(allocated) / total})
	}
	result.Nodes = c.nodes
	return result, nil
}

func newCluster(t *trace.Trace, rank []int) *cluster {
	c := &cluster{
		nodes: make([]placement.Node, len(t.Nodes)), versions: make([]uint32, len(t.Nodes)),
		rank: rank, verdicts: make([][]verdict, len(t.Kinds)),
	}
	for i := range t.Nodes {
		c.nodes[i] = *t.Nodes[i].Clone()
		c.versions[i] = 1
	}
	return c
}

func (c *cluster) place(kind int, d *placement.Demand, placer Placer) bool {
	if c.verdicts[kind] == nil {
		c.verdicts[kind] = make([]verdict, len(c.nodes))
	}
	verdicts := c.verdicts[kind]
	best, bestScore := -1, impossible
	for i := range c.nodes {
		v := &verdicts[i]
		if v.version != c.versions[i] {
			score, fits := placer.Score(&c.nodes[i], d)
			if !fits {
				score = impossible
			}
			*v = verdict{score, c.versions[i]}
		}
		if v.score > bestScore || v.score == bestScore && best >= 0 && c.rank[i] < c.rank[best] {
			best, bestScore = i, v.score
		}
	}
	if best < 0 {
		return false
	}
	choice, fits := placer.Choose(&c.nodes[best], d)
	if !fits {
		return false
	}
	c.nodes[best].Take(d, choice)
	c.versions[best]++
	return true
}
