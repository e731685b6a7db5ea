// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Holdings tells what the prepared claims of this node hold. It is asked when
// the metrics are read: the records on disk are the truth, also for what
// another instance of the driver prepared during a rolling update.
type Holdings interface {
	Shares() ([]share.Share, error)
}

// inventory turns cards and what is held of them into gauges at every read, so
// that a card or a fault that is gone leaves no series behind.
type inventory struct {
	slots    int
	holdings Holdings

	mu    sync.Mutex
	cards []card.Card // guarded by mu; never written to after it was set

	claims, shares, readable                                                                *prometheus.Desc
	cores, coresHeld, offline, offlineHeld, memory, memoryHeld, slotsHave, slotsHeld, fault *prometheus.Desc
}

func newInventory(slots int, holdings Holdings) *inventory {
	perCard := []string{"uuid", "index"}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, labels, nil)
	}
	return &inventory{
		slots: slots, holdings: holdings,
		claims:      desc("prepared_claims", "Claims prepared on this node."),
		shares:      desc("prepared_shares", "Shares of cards that prepared claims hold."),
		readable:    desc("records_readable", "1 when the records of prepared claims could be read for this scrape, else 0 and what is held is left out."),
		cores:       desc("card_cores", "Compute of the card, in percent of one card.", perCard...),
		coresHeld:   desc("card_cores_allocated", "Compute that prepared shares hold, in percent of the card.", perCard...),
		offline:     desc("card_offline_cores", "Compute of the card for offline shares, in percent of one card.", perCard...),
		offlineHeld: desc("card_offline_cores_allocated", "Compute that prepared offline shares hold, in percent of the card.", perCard...),
		memory:      desc("card_memory_bytes", "Memory of the card that containers may use.", perCard...),
		memoryHeld:  desc("card_memory_allocated_bytes", "Memory that prepared shares hold.", perCard...),
		slotsHave:   desc("card_slots", "The most shares that the card takes.", perCard...),
		slotsHeld:   desc("card_slots_used", "Prepared shares on the card.", perCard...),
		fault:       desc("card_fault", "1 for each fault that stands.", append(perCard, "kind")...),
	}
}

func (i *inventory) set(cards []card.Card) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cards = slices.Clone(cards)
}

// Describe implements prometheus.Collector.
func (i *inventory) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{i.claims, i.shares, i.readable, i.cores, i.coresHeld, i.offline, i.offlineHeld, i.memory, i.memoryHeld, i.slotsHave, i.slotsHeld, i.fault} {
		ch <- d
	}
}

// held is what shares hold of one card.
type held struct {
	share.Limits
	slots int
}

// Collect implements prometheus.Collector.
func (i *inventory) Collect(ch chan<- prometheus.Metric) {
	i.mu.Lock()
	cards := i.cards
	i.mu.Unlock()
	byCard, known := i.collectHoldings(ch)
	seen := map[card.UUID]bool{}
	for _, c := range cards {
		if seen[c.UUID] {
			continue // the same series twice would make the whole scrape fail
		}
		seen[c.UUID] = true
		gauge := cardGauge(ch, c)
		total := share.CapacityOf(c, i.slots)
		if !c.Shareable() {
			total.Slots = 1
		}
		gauge(i.cores, float64(total.Cores))
		gauge(i.offline, float64(total.OfflineCores))
		gauge(i.memory, float64(total.Memory.Bytes()))
		gauge(i.slotsHave, float64(total.Slots))
		if known {
			h := byCard[c.UUID]
			gauge(i.coresHeld, float64(h.Cores))
			gauge(i.offlineHeld, float64(h.OfflineCores))
			gauge(i.memoryHeld, float64(h.Memory.Bytes()))
			gauge(i.slotsHeld, float64(h.slots))
		}
		i.collectFaults(ch, c)
	}
}

func (i *inventory) collectHoldings(ch chan<- prometheus.Metric) (map[card.UUID]held, bool) {
	if i.holdings == nil {
		return nil, false
	}
	shares, err := i.holdings.Shares()
	if err != nil {
		ch <- prometheus.MustNewConstMetric(i.readable, prometheus.GaugeValue, 0)
		return nil, false
	}
	claims := map[string]struct{}{}
	byCard := map[card.UUID]held{}
	for _, s := range shares {
		claims[s.Claim.UID] = struct{}{}
		h := byCard[s.Card]
		h.Cores += s.Limits.Cores
		h.OfflineCores += s.Limits.OfflineCores
		h.Memory += s.Limits.Memory
		h.slots++
		byCard[s.Card] = h
	}
	ch <- prometheus.MustNewConstMetric(i.readable, prometheus.GaugeValue, 1)
	ch <- prometheus.MustNewConstMetric(i.claims, prometheus.GaugeValue, float64(len(claims)))
	ch <- prometheus.MustNewConstMetric(i.shares, prometheus.GaugeValue, float64(len(shares)))
	return byCard, true
}

func (i *inventory) collectFaults(ch chan<- prometheus.Metric, c card.Card) {
	kinds := make([]string, 0, len(c.Faults))
	for _, f := range c.Faults {
		kinds = append(kinds, f.Kind)
	}
	slices.Sort(kinds)
	gauge := cardGauge(ch, c)
	for _, kind := range slices.Compact(kinds) {
		gauge(i.fault, 1, kind)
	}
}

func cardGauge(ch chan<- prometheus.Metric, c card.Card) func(d *prometheus.Desc, v float64, more ...string) {
	return func(d *prometheus.Desc, v float64, more ...string) {
		labels := append([]string{string(c.UUID), strconv.Itoa(c.Index)}, more...)
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
}
