// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/tests/kube"
)

// A share of each of two cards, beside another share on each: it has both cards at the
// same times, as work needs whose parts wait for each other.
func TestAShareOfTwoCardsHasBothAtOnce(t *testing.T) {
	w := newWorkers(t, "gang")
	w.add(t, map[string]resourceapi.DeviceRequest{
		"both":  kube.Request("gpu", "burst.tranche.dev", 2, kube.Share("50", "2Gi")),
		"one":   part(0, "burst.tranche.dev", 50),
		"other": part(1, "burst.tranche.dev", 50),
	})
	first, second := w.card(t, "one"), w.card(t, "other")
	w.prepare(t, map[string]string{"both": "devices=2 batch=1", "one": "", "other": ""})
	w.begin(t, "both", "one", "other")
	for _, device := range []string{first, second} {
		for _, had := range w.becomes(t, device, atLeast("both", 50-2*points)) {
			require.Less(t, had["both"], 50+points)
		}
	}
	at := 0.0
	for try := 0; at < busy && try < tries; try++ {
		within := between(0, 2000).after(monotonic(t))
		at = together(w.runs(t, first, within)["both"], w.runs(t, second, within)["both"])
		t.Logf("of the time that it had a card it had both for %.0f %%", at)
	}
	require.GreaterOrEqual(t, at, busy, "by chance it would be a third")
	w.requireAtWork(t)
}

// together is the part of the time in which one of two cards was used that both were,
// in percent.
func together(a, b []span) float64 {
	both := time.Duration(0)
	for i, j := 0, 0; i < len(a) && j < len(b); {
		both += a[i].within(b[j]).length()
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}
	return 100 * float64(both) / math.Max(1, float64(sum(a)+sum(b)-both))
}
