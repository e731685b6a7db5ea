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
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tranche-dra/tranche/tests/kube"
)

// driverPIDs are the processes of the driver on this node.
func driverPIDs(t *testing.T) []int {
	t.Helper()
	return processesOf(t, kube.DaemonSet)
}

// published waits until the driver's slices list all cards, and returns for how
// long that took.
func published(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool {
		list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		devices := 0
		for _, s := range list.Items {
			if s.Spec.Driver == kube.Driver {
				devices += len(s.Spec.Devices)
			}
		}
		return devices == cards
	}, patience, 20*time.Millisecond, "all cards are published")
	return time.Since(start)
}

// away does something that has the slices deleted and returns for how long
// there was none.
func away(t *testing.T, do func()) time.Duration {
	t.Helper()
	published(t)
	watcher, err := client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + kube.Driver,
	})
	require.NoError(t, err)
	defer watcher.Stop()
	do()
	deadline := time.After(patience)
	var deleted time.Time
	for {
		select {
		case event := <-watcher.ResultChan():
			switch {
			case event.Type == watch.Deleted:
				deleted = time.Now()
			case event.Type == watch.Added && !deleted.IsZero():
				published(t)
				return time.Since(deleted)
			}
		case <-deadline:
			require.FailNow(t, "the slices are deleted and published again", "deleted at %v", deleted)
		}
	}
}

func TestKubeletRestarts(t *testing.T) {
	n := newTeam(t, "kubelet")
	n.pod(t, "before", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "before")
	for i := range 10 {
		gap := away(t, func() { ctl(t, "kill", "kubelet") })
		t.Logf("restart %d: the slices were away for %v", i+1, gap.Round(time.Millisecond))
		// Not a measurement (that is make bench): it tells publishing on
		// registration from the kubeletplugin helper's resync after 30 s.
		require.Less(t, gap, 10*time.Second)
	}
	require.Len(t, n.shareFiles(t, "before", "main"), 1, "what ran goes on running")
	n.pod(t, "after", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "before", "after")
}

func TestDeletedSlicesArePublishedAgain(t *testing.T) {
	gap := away(t, func() {
		require.NoError(t, client.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{
			FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + kube.Driver,
		}))
	})
	t.Logf("the slices were away for %v", gap.Round(time.Millisecond))
}

func TestAContainerRestartsAfterTheCDIDirectoryWasWiped(t *testing.T) {
	n := newTeam(t, "wiped")
	n.pod(t, "p", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
	specs := os.Getenv("TRANCHE_CLUSTER_CDI_DIR")
	entries, err := os.ReadDir(specs)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, e := range entries {
		require.NoError(t, os.RemoveAll(filepath.Join(specs, e.Name())))
	}
	// The container's process ends; kubelet starts another without asking the driver.
	n.restart(t, "p")
	require.Len(t, n.shareFiles(t, "p", "main"), 1)
}

// restart kills the container's first process from the node, where PID 1 of
// the container is not protected, and waits until kubelet has started it again.
func (n team) restart(t *testing.T, name string) {
	t.Helper()
	pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	killed := false
	entries, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	for _, path := range entries {
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), string(pod.UID)) {
			continue
		}
		if cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")); err != nil || !strings.Contains(string(cmdline), "sleep") {
			continue
		}
		var pid int
		_, err = fmt.Sscanf(path, "/proc/%d/cgroup", &pid)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		killed = true
	}
	require.True(t, killed, "the container has a process")
	require.Eventually(t, func() bool {
		pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && len(pod.Status.ContainerStatuses) == 1 &&
			pod.Status.ContainerStatuses[0].RestartCount > 0 && pod.Status.ContainerStatuses[0].Ready
	}, patience, tick, "the container runs again")
}

func TestTheAPIServerIsAwayForAMinute(t *testing.T) {
	n := newTeam(t, "away")
	n.pod(t, "p", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
	before := left(t)
	ctl(t, "stop", "apiserver")
	select {
	case <-time.After(time.Minute):
	case <-t.Context().Done():
	}
	require.Equal(t, before, left(t), "nothing is lost meanwhile")
	ctl(t, "start", "apiserver")
	published(t)
	// They may wait for a minute and more before they try again; the driver is
	// what is judged here.
	for _, other := range []string{"controller-manager", "scheduler", "kubelet"} {
		ctl(t, "restart", other)
	}
	published(t) // kubelet forgets them when it starts
	n.pod(t, "after", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p", "after")
}

func TestRollingUpdatesLoseNoPod(t *testing.T) {
	n := newTeam(t, "rolling")
	n.template(t, "gpu", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("10", "1Gi")))
	ctx, stop := context.WithCancel(t.Context())
	rolled := make(chan error, 1)
	go func() {
		defer stop()
		for range 3 {
			if out, err := kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "restart", "daemonset/"+kube.DaemonSet); err != nil {
				rolled <- fmt.Errorf("%w: %s", err, out)
				return
			}
			if out, err := kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "status", "daemonset/"+kube.DaemonSet, "--timeout=2m"); err != nil {
				rolled <- fmt.Errorf("%w: %s", err, out)
				return
			}
		}
		rolled <- nil
	}()
	// No more at a time than that: a machine that is slower than this would have ever more of them.
	const most = 10
	var names []string
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for ctx.Err() == nil {
		if n.atWork(t) < most {
			pod := kube.Sleeper(fmt.Sprint("p", len(names)))
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Spec.Containers[0].Command = []string{"/bin/busybox", "sh", "-c", "test -f /run/tranche/*/share.json && sleep 1"}
			kube.Use(pod, 0, "gpu", "gpu")
			names = append(names, n.create(t, pod).Name)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
		}
	}
	require.NoError(t, <-rolled)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Eventually(t, func() bool {
			pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && pod.Status.Phase == corev1.PodSucceeded
		}, patience, tick, "pod %s has run", name)
	}
	events, err := client.CoreV1().Events(n.name).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedPrepareDynamicResources"})
	require.NoError(t, err)
	for _, event := range events.Items {
		// Kubelet reads the claim itself before it asks the driver, and is refused
		// when the API server's node authorizer has not seen yet that the pod uses it.
		if !strings.Contains(event.Message, "no relationship found between node") {
			t.Errorf("a prepare failed: %s: %s", event.InvolvedObject.Name, event.Message)
		}
	}
	t.Logf("%d pods ran through 3 updates", len(names))
	require.Len(t, driverPIDs(t), 1, "the old drivers have ended")
}

// atWork counts the pods that have not ended well.
func (n team) atWork(t *testing.T) (count int) {
	t.Helper()
	pods, err := client.CoreV1().Pods(n.name).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range pods.Items {
		if pods.Items[i].Status.Phase != corev1.PodSucceeded {
			count++
		}
	}
	return count
}
