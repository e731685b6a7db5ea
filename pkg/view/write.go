// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/table"
)

const (
	nodeDefault = "node default"
	unreadable  = "unreadable"
)

// WriteJSON writes everything for programs: amounts of memory in MiB, compute in
// percent of a card.
func (s Snapshot) WriteJSON(w io.Writer) error { return table.WriteJSON(w, s) }

// WriteTables writes both tables, the cards first.
func (s Snapshot) WriteTables(w io.Writer) error {
	if err := s.WriteCards(w); err != nil {
		return err
	}
	if err := table.Line(w, ""); err != nil {
		return err
	}
	return s.WriteShares(w)
}

// WriteCards writes a table of the cards for people. Amounts are free/total.
func (s Snapshot) WriteCards(w io.Writer) error {
	rows := [][]string{{"NODE", "CARD", "MODEL", "FREE CORES", "FREE OFFLINE", "FREE MEMORY", "FREE SLOTS", "HEALTH"}}
	for i := range s.Cards {
		c := &s.Cards[i]
		rows = append(rows, []string{
			c.Node, cardName(c.Index, c.Device), table.OrNothing(c.Model),
			ofTotal(c.Cores, whole), ofTotal(c.OfflineCores, whole), ofTotal(c.Memory, table.Memory), ofTotal(c.Slots, whole),
			health(c.Taints),
		})
	}
	return table.Write(w, rows)
}

// WriteShares writes a table of who holds which share for people. A share that
// several pods hold has one line for each, its amounts on the first. Where there
// is no share one sentence says so.
func (s Snapshot) WriteShares(w io.Writer) error {
	if len(s.Shares) == 0 {
		return table.Line(w, "no pod holds a share")
	}
	rows := [][]string{{"NODE", "CARD", "NAMESPACE", "POD", "CONTAINERS", "CORES", "MEMORY", "POLICY", "CLASS", "CLAIM", "REQUEST"}}
	for i := range s.Shares {
		share := &s.Shares[i]
		policy, class := policyAndClass(share)
		pod, containers := table.Nothing, table.Nothing
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
	return table.Write(w, rows)
}

func memoryOrNothing(m card.MiB) string {
	if m == 0 {
		return table.Nothing
	}
	return table.Memory(m)
}

func whole[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func ofTotal[T ~int | ~int64](a *Amount[T], in func(T) string) string {
	if a == nil {
		return table.Nothing
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
		return table.Nothing, string(s.Class)
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
	return pod, table.OrNothing(strings.Join(h.Containers, ","))
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
