// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/tests/kube"
)

const (
	healthyFleet = `apiVersion: tranche.dev/v1alpha1
kind: Fleet
cards:
- {model: A30}
- {model: A30}
`
	faultyFleet = `apiVersion: tranche.dev/v1alpha1
kind: Fleet
cards:
- {model: A30, faults: [{kind: XidError, message: the card fell off the bus}]}
- {model: A30}
`
)

// setFleet changes the simulated cards under the running driver.
func setFleet(t *testing.T, fleet string) {
	t.Helper()
	ctx := context.Background()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"fleet.yaml": fleet}})
	require.NoError(t, err)
	_, err = client.CoreV1().ConfigMaps(kube.System).Patch(ctx, "tranche-fleet", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	// Kubelet looks at a pod's ConfigMaps when the pod changes, and otherwise once a minute.
	_, err = kube.Kubectl(ctx, "-n", kube.System, "annotate", "--overwrite", "pod", "-l", kube.Selector, "tranche.dev/fleet="+time.Now().Format(time.RFC3339Nano))
	require.NoError(t, err)
}

// tainted waits until as many cards have a taint, and returns them.
func tainted(t *testing.T, want int) []resourceapi.Device {
	t.Helper()
	var found []resourceapi.Device
	require.Eventually(t, func() bool {
		list, err := client.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + kube.Driver})
		if err != nil {
			return false
		}
		found = nil
		for _, s := range list.Items {
			for _, d := range s.Spec.Devices {
				if len(d.Taints) > 0 {
					found = append(found, d)
				}
			}
		}
		return len(found) == want
	}, patience, tick, "%d cards are tainted", want)
	return found
}

func TestAFaultTaintsTheCardUntilItHasRecovered(t *testing.T) {
	n := newTeam(t, "fault")
	n.pod(t, "before", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "before")

	t.Cleanup(func() { setFleet(t, healthyFleet); tainted(t, 0) })
	setFleet(t, faultyFleet)
	bad := tainted(t, 1)[0]
	require.Equal(t, n.card(t, "before"), bad.Name, "the first card, which is filled first")
	require.Equal(t, resourceapi.DeviceTaintEffectNoSchedule, bad.Taints[0].Effect)

	n.pod(t, "during", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "during", "before")
	require.NotEqual(t, bad.Name, n.card(t, "during"))
	n.pod(t, "both", kube.Request("gpu", "share.tranche.dev", 2, kube.Share("10", "1Gi")))
	n.waits(t, "both")

	setFleet(t, healthyFleet)
	tainted(t, 0)
	n.ready(t, "both", "before")
}
