// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tranche-dra/tranche/pkg/placement"
)

// Trace is a cluster and what is asked of it.
type Trace struct {
	// Nodes as they are before anything arrives.
	Nodes []placement.Node
	// Kinds of tasks, and for each task which kind it is. Tasks that ask for the
	// same are of one kind.
	Kinds []placement.Demand
	Tasks []int
}

// Compute is all compute of the cluster's cards.
func (t *Trace) Compute() int64 {
	var sum int64
	for i := range t.Nodes {
		for j := range t.Nodes[i].Cards {
			sum += int64(t.Nodes[i].Cards[j].Total.Compute)
		}
	}
	return sum
}

// Workload is the tasks of the trace as what the policies are to expect.
func (t *Trace) Workload() *placement.Workload {
	counts := make([]int, len(t.Kinds))
	for _, k := range t.Tasks {
		counts[k]++
	}
	seen := make([]placement.Expected, len(t.Kinds))
	for i, n := range counts {
		seen[i] = placement.Expected{Demand: t.Kinds[i], Weight: float64(n)}
	}
	nodes := make([]*placement.Node, len(t.Nodes))
	for i := range t.Nodes {
		nodes[i] = &t.Nodes[i]
	}
	return placement.NewWorkload(seen).Over(nodes)
}

// mostArrivals bounds the memory and the time of a replay.
const mostArrivals = 5_000_000

// Check says why no list of arrivals asks for load times the cluster's compute.
func (t *Trace) Check(load float64) error {
	target := load * float64(t.Compute())
	if target == 0 {
		return errors.New("no node of the trace has a card")
	}
	var sum, least int64
	for _, k := range t.Tasks {
		asked := t.Kinds[k].Compute()
		sum += asked
		if asked > 0 && (least == 0 || asked < least) {
			least = asked
		}
	}
	if sum == 0 {
		return errors.New("no task of the trace asks for a card")
	}
	if float64(least) > target {
		return fmt.Errorf("every task of the trace that asks for a card asks for more than %.4g %% of all compute", 100*load)
	}
	if n := target / float64(sum) * float64(len(t.Tasks)); n > mostArrivals {
		return fmt.Errorf("some %.3g tasks would have to arrive until %.4g %% of all compute is asked for, and at most %d can: most of them ask for no card",
			n, 100*load, mostArrivals)
	}
	return nil
}

// Arrivals are kinds in the order in which their tasks arrive.
type Arrivals struct {
	Kinds []int
	// Rank of each node: which of two is taken where a policy finds them equal.
	Rank []int
}

// Arrivals makes a list that asks for load times the cluster's compute, by the
// protocol of the FGD paper: all tasks of the trace; where these ask for less, more
// tasks drawn from it at random and put back, until the next would pass the
// load; where they ask for more, tasks taken out at random; then the whole list
// shuffled. The same seed makes the same list.
func (t *Trace) Arrivals(load float64, seed uint64) Arrivals {
	// Not for secrets, and the same list on every machine is what is wanted.
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // see above
	list := slices.Clone(t.Tasks)
	asked := make([]int64, len(t.Kinds))
	for i := range t.Kinds {
		asked[i] = t.Kinds[i].Compute()
	}
	var sum, most int64
	for _, k := range list {
		sum += asked[k]
		most = max(most, asked[k])
	}
	target := int64(load * float64(t.Compute()))
	for sum > target {
		i := random.IntN(len(list))
		sum -= asked[list[i]]
		last := len(list) - 1
		list[i], list = list[last], list[:last]
	}
	for most > 0 { // a trace that asks for no card never reaches the load
		k := t.Tasks[random.IntN(len(t.Tasks))]
		if sum+asked[k] > target {
			break
		}
		sum += asked[k]
		list = append(list, k)
	}
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return Arrivals{Kinds: list, Rank: random.Perm(len(t.Nodes))}
}
