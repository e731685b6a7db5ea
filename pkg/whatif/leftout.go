// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"slices"
	"strings"
)

// LeftOut is what waits in the cluster and was not tried, for one reason.
type LeftOut struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
	// Names of the first few.
	Names []string `json:"names"`
}

// What is listed is bounded: thousands of claims of other drivers may wait.
const (
	maxReasons   = 10
	maxNames     = 5
	otherReasons = "other reasons"
)

// leaveOut lists the ask. The last of all reasons stands for those beyond it.
func (r *Report) leaveOut(a *ask, why error) {
	text, _, _ := strings.Cut(why.Error(), "\n") // CEL draws a picture below
	i := slices.IndexFunc(r.LeftOut, func(l LeftOut) bool { return l.Why == text })
	if i < 0 {
		if len(r.LeftOut) < maxReasons {
			r.LeftOut = append(r.LeftOut, LeftOut{Why: text})
		}
		if i = len(r.LeftOut) - 1; i == maxReasons-1 {
			r.LeftOut[i].Why = otherReasons
		}
	}
	of := &r.LeftOut[i]
	if of.Count++; of.Count <= maxNames {
		of.Names = append(of.Names, a.String())
	}
}

func (l *LeftOut) String() string {
	names := strings.Join(l.Names, ", ")
	if more := l.Count - len(l.Names); more > 0 {
		names = fmt.Sprintf("%s and %d more", names, more)
	}
	return fmt.Sprintf("left out: %s: %s", names, l.Why)
}

// leftOut is one line for each reason.
func (r *Report) leftOut() string {
	lines := make([]string, len(r.LeftOut))
	for i := range r.LeftOut {
		lines[i] = r.LeftOut[i].String()
	}
	return strings.Join(lines, "\n")
}
