// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/tests/kube"
)

// processesOf are the processes on this node with that name.
func processesOf(t *testing.T, name string) []int {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/comm")
	require.NoError(t, err)
	var pids []int
	for _, path := range entries {
		comm, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue
		}
		var pid int
		_, err = fmt.Sscanf(path, "/proc/%d/comm", &pid)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func TestTheArbiterIsKilledAndReplacedWhilePodsRun(t *testing.T) {
	n := newTeam(t, "arbiter-away")
	limits := map[types.UID]uint64{}
	for name, bytes := range map[string]uint64{"small": 4 * gib, "large": 8 * gib} {
		pod := n.clientPod(t, name, kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", fmt.Sprint(bytes))))
		limits[pod.UID] = bytes
		n.ready(t, name)
	}
	card := n.card(t, "small")
	watchTruth(t, card, limits)
	witness := n.start(t, "large", "main", "witness", "256")
	old := n.tenant(t, "small", "main", 0)
	require.Equal(t, cudaSuccess, old.tell(t, "take alloc %d", 2*gib)["result"])

	for name, replace := range map[string]func(){
		"killed": func() {
			pids := processesOf(t, kube.Arbiter)
			require.Len(t, pids, 1)
			require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
		},
		"updated": func() {
			_, err := kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "restart", "daemonset/"+kube.Arbiter)
			require.NoError(t, err)
			require.NoError(t, kube.WaitForDriver(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			replace()
			// Who has its pages goes on at once, within the limit that it knows.
			require.Equal(t, cudaSuccess, old.tell(t, "take vmm %d", 256*mib)["result"])
			require.Equal(t, fmt.Sprint(4*gib), old.tell(t, "info")["total"])

			// Who comes now shares what is left with it.
			var late *program
			require.Eventually(t, func() bool {
				late = n.start(t, "small", "main", "tenant")
				return late.tell(t, "init")["result"] == cudaSuccess && late.tell(t, "context 0")["result"] == cudaSuccess
			}, patience, tick, "an arbiter is there again")
			require.LessOrEqual(t, number(t, late.tell(t, "info")["free"]), uint64(4*gib-2*gib-256*mib))
			got := late.fill(t, "alloc", block)
			require.Less(t, got, uint64(2*gib))
			require.Equal(t, cudaOutOfMemory, old.tell(t, "take alloc %d", 256*mib)["result"])
			require.NoError(t, late.stdin.Close())
			require.Eventually(t, func() bool { return old.tell(t, "take alloc %d", 256*mib)["result"] == cudaSuccess }, patience, tick,
				"what it held when it ended is back")
			for range 2 {
				require.Equal(t, cudaSuccess, old.tell(t, "drop")["result"])
			}
		})
	}
	requireRounds(t, witness)
}

func TestAPodWaitsForTheArbiter(t *testing.T) {
	n := newTeam(t, "no-arbiter")
	n.clientPod(t, "before", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "before")
	nowhere := `{"spec":{"template":{"spec":{"nodeSelector":{"no-such-node":%s}}}}}`
	patch := func(value string) {
		_, err := kube.Kubectl(t.Context(), "-n", kube.System, "patch", "daemonset", kube.Arbiter, "--patch", fmt.Sprintf(nowhere, value))
		require.NoError(t, err)
	}
	patch(`"x"`)
	t.Cleanup(func() { require.NoError(t, kube.WaitForDriver(context.Background())) })
	require.Eventually(t, func() bool { return len(processesOf(t, kube.Arbiter)) == 0 }, patience, tick, "the arbiter is away")

	n.clientPod(t, "after", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	require.Eventually(t, func() bool { return len(inPhase(records(t), checkpoint.Preparing)) == 1 }, patience, tick, "its share is being made")
	for uid := range inPhase(records(t), checkpoint.Preparing) {
		require.NoFileExists(t, cdi.NewSpecs(os.Getenv("TRANCHE_CLUSTER_CDI_DIR"), durable.Files{}).Path(uid))
	}
	pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), "after", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.PodPending, pod.Status.Phase, "nothing of it runs without its limit")
	require.Eventually(t, func() bool {
		events, err := client.CoreV1().Events(n.name).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=PrepareFailed,involvedObject.uid=" + string(pod.UID)})
		return err == nil && len(events.Items) > 0 && strings.Contains(events.Items[0].Message, "see that tranche-arbiter runs on this node")
	}, patience, tick, "whoever describes the pod learns what to do")
	out := n.inside(t, "before", "main", "echo init | tenant 2>&1")
	require.Contains(t, out, "result=802 ", "a process that starts now gets CUDA_ERROR_SYSTEM_NOT_READY")
	require.Regexp(t, `(?m)^tranche: .*arbiter`, out, "and a line that says why")

	patch("null")
	n.readyWithin(t, 2*patience, "after")
	require.EqualValues(t, 4*gib, number(t, n.tenant(t, "after", "main", 0).tell(t, "info")["total"]))
}
