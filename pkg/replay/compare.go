// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-dra/tranche/pkg/trace"
)

// Rival is a policy that is to be compared.
type Rival struct {
	Name string
	// Make a placer for one replay. Replays run at the same time, each with its own.
	Make func(t *trace.Trace, seed uint64) Placer
}

// Summary is one policy over all seeds.
type Summary struct {
	Policy string `json:"policy"`
	// AtFull is the part of all compute that was allocated when as much as the
	// cluster has had been asked for, AtEnd when all tasks had arrived: means over
	// the seeds. Lowest and Highest are of AtEnd.
	AtFull  float64 `json:"allocatedAt100"`
	AtEnd   float64 `json:"allocated"`
	Lowest  float64 `json:"lowest"`
	Highest float64 `json:"highest"`
	// Placed and Dropped tasks, means over the seeds.
	Placed  float64 `json:"placed"`
	Dropped float64 `json:"dropped"`
	// Free in the end, means over the seeds.
	Free Free `json:"free"`
	// Curve is what was allocated, mean over the seeds, at each hundredth of the
	// cluster that had arrived.
	Curve []Point `json:"curve"`
}

// Compare replays the trace under each policy with each seed, as many at once as
// there are processors. The order of the summaries is that of the policies. A
// trace that cannot ask for the load is refused.
func Compare(ctx context.Context, t *trace.Trace, load float64, seeds []uint64, rivals []Rival) ([]Summary, error) {
	if err := t.Check(load); err != nil {
		return nil, err
	}
	results := make([][]Result, len(rivals))
	free := make([][]Free, len(rivals))
	counts := make([]int, len(t.Kinds))
	for _, k := range t.Tasks {
		counts[k]++
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i := range rivals {
		results[i], free[i] = make([]Result, len(seeds)), make([]Free, len(seeds))
		for j, seed := range seeds {
			work.Go(func() (err error) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if results[i][j], err = Run(ctx, t, t.Arrivals(load, seed), rivals[i].Make(t, seed)); err != nil {
					return err
				}
				free[i][j] = FreeOf(results[i][j].Nodes, t.Kinds, counts)
				results[i][j].Nodes = nil
				return nil
			})
		}
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	summaries := make([]Summary, len(rivals))
	for i := range rivals {
		summaries[i] = summarize(rivals[i].Name, load, results[i], free[i])
	}
	return summaries, nil
}

func summarize(name string, load float64, results []Result, free []Free) Summary {
	s := Summary{Policy: name}
	part := 1 / float64(len(results))
	var ends []float64
	for i := range results {
		r := &results[i]
		s.AtFull += part * r.At(min(1, load))
		ends = append(ends, r.At(load))
		for k := range r.Placed {
			s.Placed += part * float64(r.Placed[k])
			s.Dropped += part * float64(r.Dropped[k])
		}
	}
	for _, end := range ends {
		s.AtEnd += part * end
	}
	s.Lowest, s.Highest = slices.Min(ends), slices.Max(ends)
	s.Free = meanFree(free)
	for hundredth := 1; float64(hundredth) <= load*100+1e-9; hundredth++ {
		p := Point{Arrived: float64(hundredth) / 100}
		for i := range results {
			p.Allocated += part * results[i].At(p.Arrived)
		}
		s.Curve = append(s.Curve, p)
	}
	return s
}

func meanFree(all []Free) Free {
	var sum Free
	for _, f := range all {
		sum.Compute += f.Compute
		sum.StrandedCompute += f.StrandedCompute
		sum.CardMemory += f.CardMemory
		sum.StrandedCardMemory += f.StrandedCardMemory
		sum.HostMemory += f.HostMemory
		sum.StrandedHostMemory += f.StrandedHostMemory
	}
	n := len(all)
	sum.Compute /= float64(n)
	sum.StrandedCompute /= float64(n)
	for _, m := range []*int64{
		(*int64)(&sum.CardMemory), (*int64)(&sum.StrandedCardMemory), (*int64)(&sum.HostMemory), (*int64)(&sum.StrandedHostMemory),
	} {
		*m /= int64(n)
	}
	return sum
}
