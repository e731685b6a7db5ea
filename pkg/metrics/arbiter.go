// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const arbiterSubsystem = "arbiter"

// reapBuckets in seconds: a slot is to be free within 50 ms of the end of its
// process, of which noticing it takes a part.
func reapBuckets() []float64 {
	return []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1}
}

// Arbiter holds what is measured of the arbiter of one node.
type Arbiter struct {
	registry *prometheus.Registry
	reaps    prometheus.Histogram
	findings *prometheus.CounterVec
	kills    prometheus.Counter
}

// NewArbiter makes the metrics of an arbiter. uses tells what shares and cards
// hold when the metrics are read. kinds are all that the watchdog can find.
func NewArbiter(build Build, kinds []string, uses Uses) *Arbiter {
	a := &Arbiter{
		registry: prometheus.NewRegistry(),
		reaps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: arbiterSubsystem, Name: "reap_duration_seconds", Buckets: reapBuckets(),
			Help: "Time from when the end of a process was noticed until its slot was free.",
		}),
		findings: prometheus.NewCounterVec(arbiterOpts("watchdog_findings_total",
			"Times that somebody held memory of a card, or computed on it, as no share allows, for longer than the grace time, by kind."), []string{"kind"}),
		kills: prometheus.NewCounter(arbiterOpts("watchdog_kills_total", "Processes that the watchdog ended.")),
	}
	for _, kind := range kinds {
		a.findings.WithLabelValues(kind)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: arbiterSubsystem, Name: "build_info", Help: "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "goversion": build.GoVersion},
	})
	info.Set(1)
	a.registry.MustRegister(a.reaps, a.findings, a.kills, info, newUses(uses),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return a
}

// ShowCompute adds how the cards' compute is divided. It is called once at most.
func (a *Arbiter) ShowCompute(source Compute) { a.registry.MustRegister(newCompute(source)) }

func arbiterOpts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Subsystem: arbiterSubsystem, Name: name, Help: help}
}

// Handler answers Prometheus.
func (a *Arbiter) Handler() http.Handler {
	return promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// Gatherer gives the metrics to whoever reads them without HTTP.
func (a *Arbiter) Gatherer() prometheus.Gatherer { return a.registry }

// Reaped counts one process whose slot was freed.
func (a *Arbiter) Reaped(took time.Duration) { a.reaps.Observe(took.Seconds()) }

// Found counts one finding of the watchdog; kind is one of those given to
// NewArbiter.
func (a *Arbiter) Found(kind string) { a.findings.WithLabelValues(kind).Inc() }

// Killed counts one process that the watchdog ended.
func (a *Arbiter) Killed() { a.kills.Inc() }
