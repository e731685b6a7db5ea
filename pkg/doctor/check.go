// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"time"
)

const (
	// patience is how long one check may take.
	patience = 10 * time.Second
	// grace is what a check that heeds its time gets to say so.
	grace = time.Second
)

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
	found := make([]chan []Finding, len(checks))
	for i, c := range checks {
		found[i] = make(chan []Finding, 1)
		go func() { found[i] <- c.Examine(ctx) }() // one that hangs ends with the process
	}
	var all []Finding
	for i, c := range checks {
		for _, f := range await(ctx, found[i]) {
			f.Check = c.Name
			all = append(all, f)
		}
	}
	return all
}

// await takes what a check found. A graphics driver that hangs does not heed the
// context: that is a finding, and no reason to wait.
func await(ctx context.Context, found <-chan []Finding) []Finding {
	select {
	case findings := <-found:
		return findings
	case <-ctx.Done():
	}
	// Checks that heed the context say themselves what they were waiting for.
	select {
	case findings := <-found:
		return findings
	case <-time.After(grace):
		return one(Problem, "no answer within "+patience.String(), "what is asked here hangs: look at it with its own tools (nvidia-smi, crictl), then restart it")
	}
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
