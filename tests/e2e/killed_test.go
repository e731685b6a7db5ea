// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/tests/kube"
)

const (
	// afterKills is how long pods may take when the driver was killed, and each of them has
	// to be tried again.
	afterKills = 3 * time.Minute
	// inThePhase bounds the hunt for a claim that is in the middle of something.
	inThePhase = time.Minute
)

func TestADriverKilledInTheMiddleOfPreparesLosesAndLeaksNothing(t *testing.T) {
	// A new container: kubelet starts it again at once when it is killed, and not only after a
	// while, as one that has ended before in other tests.
	_, err := kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "restart", "daemonset/"+kube.DaemonSet)
	require.NoError(t, err)
	require.NoError(t, kube.WaitForDriver(t.Context()))
	require.Eventually(t, func() bool { return len(driverPIDs(t)) == 1 }, patience, tick, "the old driver has ended")

	n := newTeam(t, "killed")
	const pods = 12
	n.template(t, "gpu", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("5", "256Mi")))
	made := 0
	more := func() bool {
		pod := kube.Sleeper(fmt.Sprint("p", made))
		kube.Use(pod, 0, "gpu", "gpu")
		n.create(t, pod)
		made++
		return made < pods
	}
	caught := killDriverWhile(t, checkpoint.Preparing, more)
	for made < pods { // the rest while no driver is there
		more()
	}
	for i := range pods {
		n.readyWithin(t, afterKills, fmt.Sprint("p", i))
		require.Len(t, n.shareFiles(t, fmt.Sprint("p", i), "main"), 1)
	}
	require.Len(t, records(t), pods)
	for uid := range caught {
		require.Equal(t, checkpoint.Prepared, records(t)[uid], "claim %s, which was caught", uid)
	}

	deleted := 0
	caught = killDriverWhile(t, checkpoint.Unpreparing, func() bool {
		require.NoError(t, client.CoreV1().Pods(n.name).Delete(t.Context(), fmt.Sprint("p", deleted), metav1.DeleteOptions{}))
		deleted++
		return deleted < pods
	})
	published(t)
	require.Eventually(t, func() bool { return len(records(t)) == pods-deleted }, afterKills, tick, "what was half gone is gone")
	for uid := range caught {
		require.NotContains(t, records(t), uid)
	}
	for i := deleted; i < pods; i++ {
		require.Len(t, n.shareFiles(t, fmt.Sprint("p", i), "main"), 1, "those that stay keep their shares")
	}
	// That nothing else is left is checked when the test ends.
}

// killDriverWhile makes work for the driver, a piece every moment until there
// is none, and kills the driver while claims are in a phase: those it returns. To be
// sure of the phase it holds the driver at every record that is written, looks,
// and lets it go on where no claim is in that phase.
func killDriverWhile(t *testing.T, phase checkpoint.Phase, work func() bool) map[string]checkpoint.Phase {
	t.Helper()
	pids := driverPIDs(t)
	require.Len(t, pids, 1)
	watcher, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	defer watcher.Close() //nolint:errcheck // it is only read
	require.NoError(t, watcher.Add(filepath.Join(stateDir, "claims")))
	ctx, cancel := context.WithTimeout(t.Context(), inThePhase)
	defer cancel()
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for looks, more := 0, true; ; {
		select {
		case event := <-watcher.Events:
			if !event.Has(fsnotify.Create) || !strings.HasSuffix(event.Name, ".json") {
				continue
			}
			looks++
			hold(t, pids[0])
			if caught := inPhase(records(t), phase); len(caught) > 0 {
				require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
				t.Logf("killed at look %d, %d claims were %s", looks, len(caught), phase)
				return caught
			}
			require.NoError(t, syscall.Kill(pids[0], syscall.SIGCONT))
		case err := <-watcher.Errors:
			require.NoError(t, err)
		case <-every.C:
			more = more && work()
		case <-ctx.Done():
			require.FailNow(t, "no claim was caught", "phase %s, %d looks", phase, looks)
		}
	}
}

// hold stops a process and waits until none of it runs.
func hold(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	for deadline := time.Now().Add(patience); ; {
		stopped := true
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		require.NotEmpty(t, threads, "the driver is alive")
		for _, path := range threads {
			// The state follows the name, which is in parentheses.
			stat, err := os.ReadFile(path)
			if err == nil && !strings.Contains(string(stat), ") T ") {
				stopped = false
			}
		}
		if stopped {
			return
		}
		require.True(t, time.Now().Before(deadline), "the driver is held")
	}
}

// records are the phases of all claims on the node, by UID.
func records(t *testing.T) map[string]checkpoint.Phase {
	t.Helper()
	paths, err := filepath.Glob(stateDir + "/claims/*.json")
	require.NoError(t, err)
	phases := map[string]checkpoint.Phase{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		uid := strings.TrimSuffix(filepath.Base(path), ".json")
		record, err := checkpoint.Decode(data, uid)
		require.NoError(t, err, "a record is never half written")
		phases[uid] = record.Phase
	}
	return phases
}

func inPhase(of map[string]checkpoint.Phase, phase checkpoint.Phase) map[string]checkpoint.Phase {
	found := map[string]checkpoint.Phase{}
	for uid, p := range of {
		if p == phase {
			found[uid] = p
		}
	}
	return found
}
