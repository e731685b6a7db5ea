// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/kube"
)

func TestWhatIsHeldFitsTheCards(t *testing.T) {
	t.Parallel()
	w := world{nodes: 5, cards: 3, shares: 40}
	held := hold(w)
	require.Len(t, held, w.shares)
	require.Equal(t, held, hold(w), "always alike")

	var published []resourceapi.ResourceSlice
	for i := range w.nodes {
		made, err := w.node(i).Slices(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}})
		require.NoError(t, err)
		for _, s := range made {
			published = append(published, *s)
		}
	}
	var claims []resourceapi.ResourceClaim
	for i, h := range held {
		claim := claimOf(fmt.Sprint(i), h.ask)
		claim.Status = heldStatus(h, &corev1.Pod{})
		claims = append(claims, *claim)
	}
	holdings := kube.HoldingsOf(published, claims)
	require.Empty(t, holdings.OverCommitted())
	require.Len(t, holdings.Capacity, w.nodes*w.cards)
	total := 0
	for _, shares := range holdings.Shares {
		total += shares
	}
	require.Equal(t, w.shares, total)
}

func TestFlags(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-short", "-only", "stock"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, world{nodes: 50, cards: 8, shares: 500}, o.world)
	for _, args := range [][]string{{"-only", "mine"}, {"-nodes", "0"}, {"-pods", "-1"}, {"-shares", "999"}, {"-shares"}} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, args)
	}
}

func TestContendersReachTheAPIServerAlike(t *testing.T) {
	t.Parallel()
	for _, s := range []contender{
		{name: "stock"},
		{name: "tranche", written: []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {qps: 5}\nprofiles: [{schedulerName: x}]\n")},
	} {
		config, err := s.configuration("/pki/kubeconfig")
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, yaml.Unmarshal(config, &got))
		require.Equal(t, "KubeSchedulerConfiguration", got["kind"])
		require.Equal(t, map[string]any{"kubeconfig": "/pki/kubeconfig", "qps": 1000.0, "burst": 2000.0}, got["clientConnection"])
		require.Equal(t, len(s.written) > 0, got["profiles"] != nil)
	}
}

// times is the histogram of that many attempts, all of one length.
func times(count uint64, seconds float64) testutil.HistogramVec {
	sum, bound := seconds*float64(count), seconds
	return testutil.HistogramVec{{Histogram: &dto.Histogram{
		SampleCount: &count, SampleSum: &sum, Bucket: []*dto.Bucket{{UpperBound: &bound, CumulativeCount: &count}},
	}}}
}

func TestWhatAHistogramCountedSince(t *testing.T) {
	t.Parallel()
	d, err := since(times(11, 0.5), times(4, 0.5))
	require.NoError(t, err)
	require.EqualValues(t, 7, d.GetAggregatedSampleCount())
	require.InDelta(t, 0.5, d.Average(), 1e-9)
	_, err = since(times(11, 0.5), nil)
	require.ErrorContains(t, err, "compare 1 histograms with 0")
}

func TestRowsCompareOursWithStock(t *testing.T) {
	t.Parallel()
	made := func(took time.Duration, attempt float64) *result {
		return &result{pods: 10, took: took, cpu: took, memory: 1 << 20, attempts: times(11, attempt), algorithm: times(11, attempt), steady: times(5, attempt), refused: times(5, attempt)}
	}
	all := rows(options{}, map[string]*result{stock: made(10*time.Second, 0.1), tranche: made(5*time.Second, 0.2)})
	byMetric := map[string]bench.Row{}
	for _, r := range all {
		byMetric[r.Metric] = r
	}
	require.InDelta(t, 2, byMetric["pods scheduled: tranche to stock"].Value, 1e-9)
	require.InDelta(t, 2, byMetric["attempt, pods one by one, mean: tranche to stock"].Value, 1e-9)
	missed := map[string]bool{}
	for _, r := range bench.Missed(all) {
		missed[r.Metric] = true
	}
	require.False(t, missed["pods scheduled: tranche to stock"], "more is better")
	require.True(t, missed["attempt, pods one by one, mean: tranche to stock"], "less is better")
	require.NoError(t, bench.Report(io.Discard, "scheduler", t.TempDir(), all))
	require.Len(t, rows(options{}, map[string]*result{stock: made(time.Second, 1)}), len(figures()))
}
