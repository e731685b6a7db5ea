// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/tests/kube"
)

// Every example works as it stands on two cards of 24 GiB.
func TestEveryExampleRuns(t *testing.T) {
	root, err := kube.Repository()
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Join(root, "demo", "examples"))
	require.NoError(t, err)
	examples := 0
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		examples++
		t.Run(entry.Name(), func(t *testing.T) {
			n := newTeam(t, "example-"+entry.Name())
			dir := filepath.Join(root, "demo", "examples", entry.Name())
			_, err := kube.Kubectl(t.Context(), "-n", n.name, "apply", "-f", dir)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				pods, err := client.CoreV1().Pods(n.name).List(t.Context(), metav1.ListOptions{})
				if err != nil || len(pods.Items) == 0 {
					return false
				}
				for i := range pods.Items {
					pod := &pods.Items[i]
					if pod.Status.Phase != corev1.PodSucceeded && kube.Condition(pod, corev1.PodReady).Status != corev1.ConditionTrue {
						return false
					}
				}
				return true
			}, patience, tick, "all pods of the example run or have ended well")
			// Controllers go first: they would make their pods again.
			_, err = kube.Kubectl(t.Context(), "-n", n.name, "delete", "-f", dir, "--wait=false")
			require.NoError(t, err)
		})
	}
	require.GreaterOrEqual(t, examples, 8)
}
