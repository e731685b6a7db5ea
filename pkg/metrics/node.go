// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	namespace = "tranche"
	subsystem = "node"

	// maxKinds bounds the label "kind" of what was healed; more are "other".
	maxKinds = 16

	success = "success"
	failure = "error"
)

// buckets in seconds: a claim is prepared in milliseconds on a healthy disk,
// and kubelet gives up after 45 s.
func buckets() []float64 {
	return []float64{.001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 15, 45}
}

// Build says which program is measured.
type Build struct{ Version, Revision, GoVersion string }

// Node holds what is measured on one node.
type Node struct {
	registry    *prometheus.Registry
	prepare     *prometheus.HistogramVec
	unprepare   *prometheus.HistogramVec
	publishes   *prometheus.CounterVec
	lists       *prometheus.CounterVec
	heals       *prometheus.CounterVec
	quarantined prometheus.Counter
	published   prometheus.Gauge
	inventory   *inventory
	mu          sync.Mutex
	kinds       map[string]struct{} // guarded by mu
}

// New makes the metrics of one node. holdings tells what the claims hold when
// the metrics are read; nil where nobody knows. slots is the most shares that
// one card takes.
func New(build Build, slots int, holdings Holdings) *Node {
	n := &Node{
		registry: prometheus.NewRegistry(),
		prepare: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "prepare_duration_seconds", Buckets: buckets(),
			Help: "Time to prepare one claim, retries included.",
		}, []string{"result"}),
		unprepare: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "unprepare_duration_seconds", Buckets: buckets(),
			Help: "Time to unprepare one claim, retries included.",
		}, []string{"result"}),
		publishes:   counters("publish_total", "Times that the node's ResourceSlices were compared with the API server's and brought in line.", "result"),
		lists:       counters("card_lists_total", "Times that the cards of this node were listed.", "result"),
		heals:       counters("heals_total", "Things found missing, stale or left behind, and put right, by kind.", "kind"),
		quarantined: prometheus.NewCounter(opts("quarantined_records_total", "Damaged records of claims that were set aside.")),
		published: prometheus.NewGauge(prometheus.GaugeOpts(
			opts("published_cards", "Cards in the node's ResourceSlices."))),
		inventory: newInventory(slots, holdings),
		kinds:     map[string]struct{}{},
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "build_info", Help: "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "goversion": build.GoVersion},
	})
	info.Set(1)
	for _, result := range []string{success, failure} {
		n.publishes.WithLabelValues(result)
		n.lists.WithLabelValues(result)
	}
	n.registry.MustRegister(n.prepare, n.unprepare, n.publishes, n.lists, n.heals, n.quarantined, n.published,
		n.inventory, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return n
}

func opts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(opts(name, help), []string{label})
}

// Handler answers Prometheus.
func (n *Node) Handler() http.Handler {
	return promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// Gatherer gives the metrics to whoever reads them without HTTP.
func (n *Node) Gatherer() prometheus.Gatherer { return n.registry }

func result(err error) string {
	if err != nil {
		return failure
	}
	return success
}

// PrepareDone counts one claim that was prepared, or could not be.
func (n *Node) PrepareDone(d time.Duration, err error) {
	n.prepare.WithLabelValues(result(err)).Observe(d.Seconds())
}

// UnprepareDone counts one claim that was unprepared, or could not be.
func (n *Node) UnprepareDone(d time.Duration, err error) {
	n.unprepare.WithLabelValues(result(err)).Observe(d.Seconds())
}

// PublishDone counts one comparison of our slices with the API server's.
func (n *Node) PublishDone(err error) { n.publishes.WithLabelValues(result(err)).Inc() }

// CardsListed takes the cards that a listing found. After an error the last
// good cards stay.
func (n *Node) CardsListed(cards []card.Card, err error) {
	n.lists.WithLabelValues(result(err)).Inc()
	if err == nil {
		n.inventory.set(cards)
	}
}

// CardsPublished takes the number of cards that are in the slices.
func (n *Node) CardsPublished(count int) { n.published.Set(float64(count)) }

// Healed counts one thing that was put right; kind is a short constant.
func (n *Node) Healed(kind string) {
	n.mu.Lock()
	if _, known := n.kinds[kind]; !known && len(n.kinds) >= maxKinds {
		kind = "other"
	} else {
		n.kinds[kind] = struct{}{}
	}
	n.mu.Unlock()
	n.heals.WithLabelValues(kind).Inc()
}

// Quarantined counts one damaged record that was set aside.
func (n *Node) Quarantined() { n.quarantined.Inc() }
