// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
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
				return n.controllersAreDone(t) && n.podsRunOrHaveEnded(t)
			}, patience, tick, "all pods of the example run or have ended well, and there are as many as it wants")
			n.requireNoComplaints(t)
			// Controllers go first: they would make their pods again.
			_, err = kube.Kubectl(t.Context(), "-n", n.name, "delete", "-f", dir, "--wait=false")
			require.NoError(t, err)
		})
	}
	require.GreaterOrEqual(t, examples, 8)
}

// requireNoComplaints checks that the programs of the example have used their
// cards, or are about to, without a fault.
func (n team) requireNoComplaints(t *testing.T) {
	t.Helper()
	pods, err := client.CoreV1().Pods(n.name).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range pods.Items {
		out, err := kube.Kubectl(t.Context(), "-n", n.name, "logs", pods.Items[i].Name, "--all-containers")
		require.NoError(t, err)
		require.NotRegexp(t, `(?m)^(client \d+|tranche-smi|tranche): `, out, "pod %s", pods.Items[i].Name)
	}
}

// controllersAreDone tells whether every Deployment has all of its replicas and
// every Job is complete: until then there may be pods that nobody has made yet.
func (n team) controllersAreDone(t *testing.T) bool {
	t.Helper()
	deployments, err := client.AppsV1().Deployments(n.name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		want := *d.Spec.Replicas
		if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != want || d.Status.AvailableReplicas != want {
			return false
		}
	}
	jobs, err := client.BatchV1().Jobs(n.name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	for i := range jobs.Items {
		if !complete(&jobs.Items[i]) {
			return false
		}
	}
	return true
}

func complete(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func (n team) podsRunOrHaveEnded(t *testing.T) bool {
	t.Helper()
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
}
