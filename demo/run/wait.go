// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// askEvery is short: the demo is watched by somebody.
	askEvery = 100 * time.Millisecond
	// toExplain bounds the search for what went wrong.
	toExplain = 15 * time.Second
)

// question asks the cluster for something. It returns an empty text when that is
// so, else what is missing in people's terms.
type question func(ctx context.Context) (missing string, err error)

// await asks until nothing is missing. When patience ends, the error says what
// was waited for, what was missing last, and what the cluster says about it.
func (d *demo) await(ctx context.Context, what string, ask question) error {
	missing := "the API server has not answered"
	err := wait.PollUntilContextTimeout(ctx, askEvery, d.patience, true, func(ctx context.Context) (bool, error) {
		now, problem := ask(ctx)
		if problem != nil { // an API server that is busy or restarting is asked again
			now = problem.Error()
		}
		if ctx.Err() == nil { // else it is too late for an answer
			missing = now
		}
		return missing == "", nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
	}
	diagnosis, cancel := context.WithTimeout(context.WithoutCancel(ctx), toExplain)
	defer cancel()
	return fmt.Errorf("wait for %s: not within %s: %s\n%s", what, d.patience, missing, d.explain(diagnosis))
}
