// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	nothing     = "-"
	nodeDefault = "node default"
	unreadable  = "unreadable"
)

// WriteJSON writes everything for programs: amounts of memory in MiB, compute in
// percent of a card.
func (s Snapshot) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return fmt.Errorf("write view: %w", err)
	}
	return nil
}

// WriteTables writes both tables, the cards first.
func (s Snapshot) WriteTables(w io.Writer) error {
	if err := s.WriteCards(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return s.WriteShares(w)
}

// WriteCards writes a table of the cards for people. Amounts are free/total.
func (s Snapshot) WriteCards(w io.Writer) error {
	rows := [][]string{{"NODE", "CARD", "MODEL", "FREE CORES", "FREE OFFLINE", "FREE MEMORY", "FREE SLOTS", "HEALTH"}}
	for i := range s.Cards {
		c := &s.Cards[i]
		rows = append(rows, []string{
			c.Node, cardName(c.Index, c.Device), orNothing(c.Model),
			ofTotal(c.Cores, whole), ofTotal(c.OfflineCores, whole), ofTotal(c.Memory, Memory), ofTotal(c.Slots, whole),
			health(c.Taints),
		})
	}
	return writeTable(w, rows)
}

// WriteShares writes a table of who holds which share for people. A share that
// several pods hold has one line for each, its amounts on the first. Where there
// is no share one sentence says so.
func (s Snapshot) WriteShares(w io.Writer) error {
	if len(s.Shares) == 0 {
		if _, err := fmt.Fprintln(w, "no pod holds a share"); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
		return nil
	}
	rows := [][]string{{"NODE", "CARD", "NAMESPACE", "POD", "CONTAINERS", "CORES", "MEMORY", "POLICY", "CLASS", "CLAIM", "REQUEST"}}
	for i := range s.Shares {
		share := &s.Shares[i]
		policy, class := policyAndClass(share)
		pod, containers := nothing, nothing
		if len(share.Holders) > 0 {
			pod, containers = holderCells(share.Holders[0])
		}
		rows = append(rows, []string{
			share.Node, cardName(share.Index, share.Device), share.Namespace, pod, containers,
			compute(share), memoryOrNothing(share.Memory), policy, class, share.Claim, share.Request,
		})
		for _, more := range share.Holders[min(1, len(share.Holders)):] {
			pod, containers = holderCells(more)
			rows = append(rows, []string{"", "", "", pod, containers, "", "", "", "", "", ""})
		}
	}
	return writeTable(w, rows)
}

func writeTable(w io.Writer, rows [][]string) error {
	var aligned strings.Builder
	table := tabwriter.NewWriter(&aligned, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for line := range strings.Lines(aligned.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// Memory prints an amount as people write it in a claim: "24Gi", "81559Mi".
func Memory(m card.MiB) string { return resource.NewQuantity(m.Bytes(), resource.BinarySI).String() }

func memoryOrNothing(m card.MiB) string {
	if m == 0 {
		return nothing
	}
	return Memory(m)
}

func whole[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func ofTotal[T ~int | ~int64](a *Amount[T], in func(T) string) string {
	if a == nil {
		return nothing
	}
	return in(a.Free) + "/" + in(a.Total)
}

// cardName is the card's number on its node, as people count cards.
func cardName(index *int, device string) string {
	if index == nil {
		return device
	}
	return strconv.Itoa(*index)
}

func orNothing(s string) string {
	if s == "" {
		return nothing
	}
	return s
}

func health(taints []Taint) string {
	if len(taints) == 0 {
		return "healthy"
	}
	words := make([]string, 0, len(taints))
	for _, t := range taints {
		words = append(words, fmt.Sprintf("%s (%s)", t.Kind, t.Effect))
	}
	return strings.Join(words, ", ")
}

// policyAndClass leaves the policy of a whole card out: with nobody else on the
// card there is nothing to divide.
func policyAndClass(s *Share) (policy, class string) {
	switch {
	case s.ConfigError != "":
		return unreadable, unreadable
	case s.Whole:
		return nothing, string(s.Class)
	case s.Policy == "":
		return nodeDefault, string(s.Class)
	}
	return string(s.Policy), string(s.Class)
}

func holderCells(h Holder) (pod, containers string) {
	pod = h.Name
	if h.Resource != "" {
		pod = h.Resource + "/" + pod
	}
	return pod, orNothing(strings.Join(h.Containers, ","))
}

// compute names the ledger where it is not the usual one. The node prepares no
// share that holds of both, but the API server can know of one.
func compute(s *Share) string {
	switch {
	case s.OfflineCores == 0:
		return whole(s.Cores)
	case s.Cores == 0:
		return whole(s.OfflineCores) + " offline"
	}
	return whole(s.Cores) + "+" + whole(s.OfflineCores) + " offline"
}
