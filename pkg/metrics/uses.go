// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dra/tranche/pkg/card"
)

// ShareUse is what the processes of a share hold at one moment. Amounts are
// bytes.
type ShareUse struct {
	Namespace, Claim, Request string
	Card                      card.UUID

	// Limit is infinite where Unlimited is set.
	Limit     uint64
	Unlimited bool
	// Charged counts for the limit; Implicit is the part of it that the processes
	// did not ask for by name.
	Charged, Implicit uint64
	Processes         int
	// Refused and Reaped count clients that got nothing and processes that ended.
	Refused, Reaped uint64
	Withheld        bool
	// Findings of the watchdog that stand.
	Findings int
}

// CardUse is what processes hold of a card, as the card says.
type CardUse struct {
	Card card.UUID
	// Readable is false where the card could not be read last; the rest means
	// nothing then.
	Readable bool
	// Used by all processes, and by those that belong to no share, in bytes.
	Used, Unattributed uint64
	Processes          int
}

// Uses tells what shares and cards hold now.
type Uses interface {
	Uses() ([]ShareUse, []CardUse)
}

// uses turns what is held into gauges at every read, so that a share that has
// ended leaves no series behind.
type uses struct {
	source Uses

	limit, charged, implicit, processes, refused, reaped, withheld, findings *prometheus.Desc
	readable, used, unattributed, cardProcesses                              *prometheus.Desc
}

func newUses(source Uses) *uses {
	perShare := []string{"namespace", "claim", "request", "uuid"}
	perCard := []string{"uuid"}
	desc := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, arbiterSubsystem, name), help, labels, nil)
	}
	return &uses{
		source:        source,
		limit:         desc("share_memory_limit_bytes", "Memory that the share's processes may hold together; +Inf for a whole card.", perShare),
		charged:       desc("share_memory_charged_bytes", "Memory that counts for the share's limit at present.", perShare),
		implicit:      desc("share_memory_implicit_bytes", "Memory that counts for the share's limit and that processes did not ask for by name: contexts, modules and the like.", perShare),
		processes:     desc("share_processes", "Processes that are attached to the share.", perShare),
		refused:       desc("share_refused_total", "Clients of the share that got nothing.", perShare),
		reaped:        desc("share_reaped_total", "Processes of the share that ended.", perShare),
		withheld:      desc("share_withheld", "1 while the watchdog lets the share allocate and launch nothing.", perShare),
		findings:      desc("share_findings", "Findings of the watchdog that stand, the grace time not awaited.", perShare),
		readable:      desc("card_readable", "1 when it could be read last what processes hold of the card.", perCard),
		used:          desc("card_processes_used_bytes", "Memory of the card that processes hold.", perCard),
		unattributed:  desc("card_unattributed_bytes", "Memory of the card that processes hold which belong to no share.", perCard),
		cardProcesses: desc("card_processes", "Processes that hold memory of the card.", perCard),
	}
}

// Describe implements prometheus.Collector.
func (u *uses) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		u.limit, u.charged, u.implicit, u.processes, u.refused, u.reaped, u.withheld, u.findings,
		u.readable, u.used, u.unattributed, u.cardProcesses,
	} {
		ch <- d
	}
}

// shareName is what the labels of a share say.
type shareName struct {
	namespace, claim, request string
	card                      card.UUID
}

// Collect implements prometheus.Collector. One request may hold a card twice, and
// an ended claim's name may be used again: such shares are shown as one.
func (u *uses) Collect(ch chan<- prometheus.Metric) {
	shares, cards := u.source.Uses()
	together := map[shareName]ShareUse{}
	for _, s := range shares {
		name := shareName{s.Namespace, s.Claim, s.Request, s.Card}
		sum := together[name]
		sum.Limit += s.Limit
		sum.Unlimited = sum.Unlimited || s.Unlimited
		sum.Charged += s.Charged
		sum.Implicit += s.Implicit
		sum.Processes += s.Processes
		sum.Refused += s.Refused
		sum.Reaped += s.Reaped
		sum.Withheld = sum.Withheld || s.Withheld
		sum.Findings += s.Findings
		together[name] = sum
	}
	for name, s := range together {
		u.collectShare(ch, name, s)
	}
	for _, c := range cards {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, string(c.Card))
		}
		gauge(u.readable, one(c.Readable))
		if c.Readable {
			gauge(u.used, float64(c.Used))
			gauge(u.unattributed, float64(c.Unattributed))
			gauge(u.cardProcesses, float64(c.Processes))
		}
	}
}

func (u *uses) collectShare(ch chan<- prometheus.Metric, name shareName, s ShareUse) {
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, name.namespace, name.claim, name.request, string(name.card))
	}
	limit := float64(s.Limit)
	if s.Unlimited {
		limit = math.Inf(1)
	}
	emit(u.limit, prometheus.GaugeValue, limit)
	emit(u.charged, prometheus.GaugeValue, float64(s.Charged))
	emit(u.implicit, prometheus.GaugeValue, float64(s.Implicit))
	emit(u.processes, prometheus.GaugeValue, float64(s.Processes))
	emit(u.refused, prometheus.CounterValue, float64(s.Refused))
	emit(u.reaped, prometheus.CounterValue, float64(s.Reaped))
	emit(u.withheld, prometheus.GaugeValue, one(s.Withheld))
	emit(u.findings, prometheus.GaugeValue, float64(s.Findings))
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
