// SPDX-License-Identifier: Apache-2.0

package nodeview

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/table"
)

// WriteJSON writes everything for programs.
func (n Node) WriteJSON(w io.Writer) error { return table.WriteJSON(w, n) }

// WriteTables writes the cards and below them their shares for people.
func (n Node) WriteTables(w io.Writer) error {
	if len(n.Cards) == 0 {
		return table.Line(w, "no card of this node has a share")
	}
	cards := [][]string{{"CARD", "MODEL", "FREE CORES", "FREE OFFLINE", "FREE MEMORY", "USED MEMORY", "SLICE", "HOLDER", "SWITCHES"}}
	shares := [][]string{{
		"CARD", "NAMESPACE", "CLAIM", "REQUEST", "POLICY", "CLASS", "CORES", "CEILING", "LEASE", "RATE", "HELD", "ENTITLED", "WANTED", "THROTTLED",
		"PREEMPTED", "P50", "P99", "MEMORY", "PIDS",
	}}
	for i := range n.Cards {
		c := &n.Cards[i]
		cards = append(cards, c.row())
		for j := range c.Shares {
			shares = append(shares, c.Shares[j].row())
		}
	}
	if err := table.Write(w, cards); err != nil {
		return err
	}
	if err := table.Line(w, ""); err != nil {
		return err
	}
	return table.Write(w, shares)
}

func (c *Card) row() []string {
	used := table.Nothing
	if c.MemoryReadable {
		used = memory(c.MemoryUsed)
	}
	free := table.Nothing
	if c.MemoryMiB > 0 {
		free = table.Memory(c.MemoryFreeMiB) + "/" + table.Memory(c.MemoryMiB)
	}
	holder := table.Nothing
	for i := range c.Shares {
		if s := &c.Shares[i]; s.Key == c.Holder {
			holder = s.ID.Claim.String()
		}
	}
	return []string{
		string(c.UUID), table.OrNothing(c.Model), strconv.Itoa(int(c.CoresFree)) + "/100", strconv.Itoa(int(c.OfflineCoresFree)) + "/100",
		free, used, duration(c.Quantum), holder, strconv.FormatUint(c.Switches, 10),
	}
}

func (s *Share) row() []string {
	cores := strconv.Itoa(int(s.Limits.Cores))
	if s.Limits.OfflineCores > 0 {
		cores = strconv.Itoa(int(s.Limits.OfflineCores)) + " offline"
	}
	policy, limit, ceiling := string(s.Policy), table.Nothing, table.Nothing
	if s.Policy.Bursts() && !s.Whole {
		ceiling = strconv.Itoa(int(s.Ceiling))
	}
	if s.Whole {
		policy = table.Nothing
	}
	if !s.Unlimited {
		limit = memory(s.MemoryLimit)
	}
	p50, p99 := table.Nothing, table.Nothing
	if s.Latency.Count() > 0 {
		p50, p99 = duration(s.Latency.Quantile(0.5)), duration(s.Latency.Quantile(0.99))
	}
	var pids []string
	for _, p := range s.Processes {
		pids = append(pids, strconv.Itoa(p.PID))
	}
	return []string{
		string(s.Card), s.ID.Claim.Namespace, s.ID.Claim.Name, s.ID.Request, policy, string(s.Class), cores, ceiling, s.lease(),
		s.rate(), s.sum(s.Held), s.sum(s.Entitled), s.sum(s.Wanted), s.sum(s.Throttled),
		strconv.FormatUint(s.Preemptions, 10), p50, p99, memory(s.MemoryUsed) + "/" + limit, table.OrNothing(strings.Join(pids, ",")),
	}
}

// free: it is alone on its card, and nobody counts what it computes.
func (s *Share) free() bool { return s.State == "free" }

func (s *Share) rate() string {
	if s.free() {
		return table.Nothing
	}
	return strconv.FormatFloat(100*s.Rate, 'f', 1, 64) + "%"
}

// sum of a share that never was beside another one would read as if it had not computed.
func (s *Share) sum(d time.Duration) string {
	if s.free() && s.Held == 0 && s.Wanted == 0 {
		return table.Nothing
	}
	return duration(d)
}

// lease is its state, with what people should know besides.
func (s *Share) lease() string {
	switch {
	case s.Withheld:
		return s.State + ",withheld"
	case s.Draining:
		return s.State + ",draining"
	case s.Wants && s.State == "closed":
		return s.State + ",waits"
	}
	return s.State
}

// duration to three digits or so: nobody reads more.
func duration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

func memory(bytes uint64) string { return table.Memory(card.FloorMiB(bytes)) }
