// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"sync"
	"time"
)

// patience is how long one check may take.
const patience = 10 * time.Second

// Level says how a finding is to be taken.
type Level string

const (
	// OK: nothing to do.
	OK Level = "ok"
	// Skipped: it could not be looked at from here, which is no fault.
	Skipped Level = "skipped"
	// Warning: it works, but not as well as it could, or nobody can tell.
	Warning Level = "warning"
	// Problem: pods do not get what they should.
	Problem Level = "problem"
)

// Finding is one thing that was seen.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Seen is what was seen, in people's terms.
	Seen string `json:"seen"`
	// Remedy is what to do; empty where there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// Examiner looks at one thing. What it cannot look at is a finding, too.
type Examiner interface {
	Examine(ctx context.Context) []Finding
}

// Check is an examiner with the name under which its findings are listed.
type Check struct {
	Name string
	Examiner
}

// Known are findings that were made before the checks began.
type Known []Finding

// Examine implements Examiner.
func (k Known) Examine(context.Context) []Finding { return k }

// Report is what all checks found.
type Report struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	// Findings in the order of the checks.
	Findings []Finding `json:"findings"`
}

// Examine runs the checks concurrently, each for ten seconds at most, and lists
// their findings in the order of the checks.
func Examine(ctx context.Context, checks []Check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := make([][]Finding, len(checks))
	var group sync.WaitGroup
	for i, c := range checks {
		group.Go(func() { found[i] = c.Examine(ctx) })
	}
	group.Wait()
	var all []Finding
	for i, findings := range found {
		for _, f := range findings {
			f.Check = checks[i].Name
			all = append(all, f)
		}
	}
	return all
}

// Count is how many findings have that level.
func (r Report) Count(level Level) int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func one(level Level, seen, remedy string) []Finding {
	return []Finding{{Level: level, Seen: seen, Remedy: remedy}}
}
