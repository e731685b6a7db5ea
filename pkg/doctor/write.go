// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes the report for programs.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// WriteTable writes the report for people: one line a finding, and a last line
// that sums up.
func (r Report) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		line := oneLine(f.Seen)
		if f.Remedy != "" {
			line += " -> " + oneLine(f.Remedy)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Level, f.Check, line)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if _, err := fmt.Fprintf(w, "node %s, tranche-node %s: %s, %s\n", r.Node, r.Version,
		number(r.Count(Problem), "problem"), number(r.Count(Warning), "warning")); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// oneLine keeps errors of many lines from breaking the table.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// number is "1 card", "2 cards".
func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
