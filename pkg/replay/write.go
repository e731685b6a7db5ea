// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/trace"
)

// Report is a comparison as it is shown.
type Report struct {
	Nodes int `json:"nodes"`
	Cards int `json:"cards"`
	Tasks int `json:"tasks"`
	// Load is what arrives, as a part of all compute.
	Load  float64  `json:"load"`
	Seeds []uint64 `json:"seeds"`
	// Policies in the order in which they were asked for.
	Policies []Summary `json:"policies"`
}

// NewReport says what was compared.
func NewReport(t *trace.Trace, load float64, seeds []uint64, policies []Summary) Report {
	r := Report{Nodes: len(t.Nodes), Tasks: len(t.Tasks), Load: load, Seeds: seeds, Policies: policies}
	for i := range t.Nodes {
		r.Cards += len(t.Nodes[i].Cards)
	}
	return r
}

// WriteJSON writes everything for programs: parts of the cluster from 0 to 1,
// memory in MiB.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// WriteTable writes one line for each policy for people.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s; %s in the trace, %s %% of all compute asked for; mean of %s\n\n",
		count(r.Nodes, "node"), count(r.Cards, "card"), count(r.Tasks, "task"), percent(r.Load), count(len(r.Seeds), "replay"))
	out := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	header := []string{"POLICY", "ALLOCATED AT 100 %", "IN THE END", "FROM", "TO", "DROPPED", "FREE CARDS", "STRANDED CARDS", "FREE HOST MEMORY", "STRANDED HOST MEMORY"}
	memory := r.cardMemory()
	if memory {
		header = append(header, "FREE CARD MEMORY", "STRANDED CARD MEMORY")
	}
	fmt.Fprintln(out, strings.Join(header, "\t"))
	for i := range r.Policies {
		s := &r.Policies[i]
		row := []string{
			s.Policy, percent(s.AtFull) + " %", percent(s.AtEnd) + " %", percent(s.Lowest) + " %", percent(s.Highest) + " %",
			fmt.Sprintf("%.0f of %.0f", s.Dropped, s.Dropped+s.Placed),
			fmt.Sprintf("%.1f", s.Free.Compute), fmt.Sprintf("%.1f", s.Free.StrandedCompute),
			gibibytes(s.Free.HostMemory), gibibytes(s.Free.StrandedHostMemory),
		}
		if memory {
			row = append(row, gibibytes(s.Free.CardMemory), gibibytes(s.Free.StrandedCardMemory))
		}
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (r Report) cardMemory() bool {
	for i := range r.Policies {
		if r.Policies[i].Free.CardMemory > 0 {
			return true
		}
	}
	return false
}

func percent(part float64) string { return fmt.Sprintf("%.2f", 100*part) }

func gibibytes(m card.MiB) string { return fmt.Sprintf("%.0f GiB", float64(m)/1024) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Ours is the policies of this project as rivals, with the trace as the workload
// that they expect.
func Ours(policies ...placement.Policies) []Rival {
	rivals := make([]Rival, len(policies))
	for i, p := range policies {
		rivals[i] = Rival{Name: p.String(), Make: func(t *trace.Trace, _ uint64) Placer {
			with := p
			with.Workload = t.Workload()
			return with
		}}
	}
	return rivals
}
