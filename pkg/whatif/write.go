// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes everything for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// WriteTables writes for people: the policies, then where each claim would go.
func (r *Report) WriteTables(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "nodes: %d; cards: %d; claims asked for: %d\n\n", r.Nodes, r.Cards, r.Asked)
	out := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "POLICY\tPLACED\tALLOCATED BEFORE\tAFTERWARDS\tWHOLE CARDS FREE\tFREE CARDS\tSTRANDED CARDS\tFREE CARD MEMORY\tSTRANDED CARD MEMORY")
	for i := range r.Policies {
		o := &r.Policies[i]
		fmt.Fprintf(out, "%s\t%d of %d\t%.1f %%\t%.1f %%\t%d\t%.2f\t%.2f\t%d MiB\t%d MiB\n", o.Policy, o.Placed, r.Asked, 100*o.Before, 100*o.Allocated,
			o.WholeCards, o.Free.Compute, o.Free.StrandedCompute, o.Free.CardMemory, o.Free.StrandedCardMemory)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	fmt.Fprintln(&text)
	fmt.Fprintln(out, "CLAIM\tPOLICY\tPLACED\tON CARDS")
	for j := range r.Policies[0].Claims {
		for i := range r.Policies {
			c := &r.Policies[i].Claims[j]
			fmt.Fprintf(out, "%s\t%s\t%d of %d\t%s\n", c.Name, r.Policies[i].Policy, c.Placed, c.Asked, places(c.On))
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if missing := r.missing(); missing != "" {
		fmt.Fprintf(&text, "\n%s", missing)
	}
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(&text, "\n%s\n", r.leftOut())
	}
	for _, unknown := range r.Unknown {
		fmt.Fprintf(&text, "\nnot looked at: %s\n", unknown)
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// missing is one line for each claim and reason, with the policies under which
// that was so.
func (r *Report) missing() string {
	var text strings.Builder
	for j := range r.Policies[0].Claims {
		var reasons []string
		under := map[string][]string{}
		for i := range r.Policies {
			c := &r.Policies[i].Claims[j]
			if c.Missing == "" {
				continue
			}
			if under[c.Missing] == nil {
				reasons = append(reasons, c.Missing)
			}
			under[c.Missing] = append(under[c.Missing], r.Policies[i].Policy)
		}
		for _, reason := range reasons {
			policies := "every policy"
			if len(under[reason]) < len(r.Policies) {
				policies = strings.Join(under[reason], ", ")
			}
			fmt.Fprintf(&text, "%s, under %s: %s\n", r.Policies[0].Claims[j].Name, policies, reason)
		}
	}
	return text.String()
}

// places is "node-a: 0 1 1, node-b: 0".
func places(on []Place) string {
	if len(on) == 0 {
		return "-"
	}
	var order []string
	cards := map[string][]string{}
	for _, p := range on {
		if cards[p.Node] == nil {
			order = append(order, p.Node)
		}
		cards[p.Node] = append(cards[p.Node], p.Card)
	}
	for i, node := range order {
		order[i] = node + ": " + strings.Join(cards[node], " ")
	}
	return strings.Join(order, ", ")
}
