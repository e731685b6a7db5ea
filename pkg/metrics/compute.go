// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
)

// computePatience is how long a reader of the metrics waits for the figures.
const computePatience = 2 * time.Second

// CardTurns is how a card goes from one share to another.
type CardTurns struct {
	Card card.UUID
	// Switches counts how often it did.
	Switches uint64
	// Quantum that a share has it while others wait.
	Quantum time.Duration
	// Since the arbiter took the card on: shares had it (Held), nobody had it and
	// work of shares that had been stopped ran on (Draining), or nothing was wanted
	// (Idle). Overlap is what shares had at the same time as another.
	Held, Draining, Idle, Overlap time.Duration
}

// Compute tells how the compute of the node's cards is divided.
type Compute interface {
	Guarantees(ctx context.Context) []nodeview.Guarantee
	Turns(ctx context.Context) []CardTurns
}

// compute turns what shares were promised and got into metrics at every read, so
// that a share that has ended leaves no series behind.
type compute struct {
	source Compute

	granted, ceiling, rate, wanted, held, entitled, throttled, preemptions, latency *prometheus.Desc
	switches, quantum, cardHeld, cardDraining, cardIdle, cardOverlap                *prometheus.Desc
}

func newCompute(source Compute) *compute {
	perShare := []string{"namespace", "claim", "request", "uuid"}
	perCard := []string{"uuid"}
	desc := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, arbiterSubsystem, name), help, labels, nil)
	}
	return &compute{
		source: source,
		granted: desc("share_cores", "Compute that the share holds, in percent of the card: a limit, a guarantee or a weight, as the policy says.",
			append(slices.Clip(perShare), "policy", "class")),
		ceiling:      desc("share_burst_ceiling_cores", "The most compute that the share may use, in percent of the card, where its policy has such a ceiling.", perShare),
		rate:         desc("share_entitled_ratio", "Part of the card that the share is entitled to at present, 0 to 1; 0 while it wants none, and for an offline share that may not run.", perShare),
		wanted:       desc("share_compute_wanted_seconds_total", "Time in which the share had work for the card.", perShare),
		held:         desc("share_compute_held_seconds_total", "Time in which the share had work for the card, and had it. Divided by tranche_arbiter_share_compute_wanted_seconds_total it is the part of the card that the share achieved.", perShare),
		entitled:     desc("share_compute_entitled_seconds_total", "Time in which the share had work for the card, and should have had it by its policy, given who else wanted it.", perShare),
		throttled:    desc("share_compute_throttled_seconds_total", "Time in which the share had work for the card, and had to wait.", perShare),
		preemptions:  desc("share_preemptions_total", "Times that the card was taken from the share while it had work for it.", perShare),
		latency:      desc("share_preemption_duration_seconds", "Time from when the card was taken from the share until nothing of it was in flight.", perShare),
		switches:     desc("card_switches_total", "Times that the card went from one share to another.", perCard),
		quantum:      desc("card_quantum_seconds", "Time that a share has the card while others wait for it.", perCard),
		cardHeld:     desc("card_held_seconds_total", "Time in which a share had the card.", perCard),
		cardDraining: desc("card_draining_seconds_total", "Time in which no share had the card, for work of one that had been stopped was in flight.", perCard),
		cardIdle:     desc("card_idle_seconds_total", "Time in which no share wanted the card.", perCard),
		cardOverlap:  desc("card_overlap_seconds_total", "Time for which shares had the card beside another: work that did not end in time, or was not waited for.", perCard),
	}
}

// Describe implements prometheus.Collector.
func (c *compute) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.granted, c.ceiling, c.rate, c.wanted, c.held, c.entitled, c.throttled, c.preemptions, c.latency,
		c.switches, c.quantum, c.cardHeld, c.cardDraining, c.cardIdle, c.cardOverlap,
	} {
		ch <- d
	}
}

// kindOfShare is how a share is treated.
type kindOfShare struct {
	policy share.Policy
	class  share.Class
}

// Collect implements prometheus.Collector. One request may hold a card twice, and
// an ended claim's name may be used again: such shares are shown as one.
func (c *compute) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), computePatience)
	defer cancel()
	together := map[shareName]nodeview.Guarantee{}
	granted := map[shareName]map[kindOfShare]card.Percent{}
	for _, g := range c.source.Guarantees(ctx) {
		name := shareName{g.ID.Claim.Namespace, g.ID.Claim.Name, g.ID.Request, g.Card}
		if granted[name] == nil {
			granted[name] = map[kindOfShare]card.Percent{}
		}
		granted[name][kindOfShare{g.Policy, g.Class}] += g.Limits.Cores + g.Limits.OfflineCores // one of them is 0
		together[name] = sumOf(together[name], g)
	}
	for name, g := range together {
		for kind, cores := range granted[name] {
			ch <- prometheus.MustNewConstMetric(c.granted, prometheus.GaugeValue, float64(cores),
				name.namespace, name.claim, name.request, string(name.card), string(kind.policy), string(kind.class))
		}
		c.collectShare(ch, name, g)
	}
	for _, t := range c.source.Turns(ctx) {
		c.collectCard(ch, t)
	}
}

// sumOf two shares that are shown as one.
func sumOf(a, b nodeview.Guarantee) nodeview.Guarantee {
	b.Ceiling = min(a.Ceiling+b.Ceiling, card.WholeCompute)
	b.Rate += a.Rate
	b.Wanted += a.Wanted
	b.Held += a.Held
	b.Entitled += a.Entitled
	b.Throttled += a.Throttled
	b.Preemptions += a.Preemptions
	b.Latency.Sum += a.Latency.Sum
	for i, n := range a.Latency.Counts {
		b.Latency.Counts[i] += n
	}
	return b
}

func (c *compute) collectShare(ch chan<- prometheus.Metric, name shareName, g nodeview.Guarantee) {
	labels := []string{name.namespace, name.claim, name.request, string(name.card)}
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	if g.Policy.Bursts() {
		emit(c.ceiling, prometheus.GaugeValue, float64(g.Ceiling))
	}
	emit(c.rate, prometheus.GaugeValue, g.Rate)
	emit(c.wanted, prometheus.CounterValue, g.Wanted.Seconds())
	emit(c.held, prometheus.CounterValue, g.Held.Seconds())
	emit(c.entitled, prometheus.CounterValue, g.Entitled.Seconds())
	emit(c.throttled, prometheus.CounterValue, g.Throttled.Seconds())
	emit(c.preemptions, prometheus.CounterValue, float64(g.Preemptions))
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range nodeview.LatencyBounds() {
		below += g.Latency.Counts[i]
		buckets[bound.Seconds()] = below
	}
	ch <- prometheus.MustNewConstHistogram(c.latency, g.Latency.Count(), g.Latency.Sum.Seconds(), buckets, labels...)
}

func (c *compute) collectCard(ch chan<- prometheus.Metric, t CardTurns) {
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, string(t.Card))
	}
	emit(c.switches, prometheus.CounterValue, float64(t.Switches))
	emit(c.quantum, prometheus.GaugeValue, t.Quantum.Seconds())
	emit(c.cardHeld, prometheus.CounterValue, t.Held.Seconds())
	emit(c.cardDraining, prometheus.CounterValue, t.Draining.Seconds())
	emit(c.cardIdle, prometheus.CounterValue, t.Idle.Seconds())
	emit(c.cardOverlap, prometheus.CounterValue, t.Overlap.Seconds())
}
