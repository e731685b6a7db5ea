// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/tests/kube"
)

// examine runs doctor in the driver's pod, which has no privilege, and as the
// pod's service account.
func examine(t *testing.T, args ...string) (exit int, report doctor.Report) {
	t.Helper()
	published(t)
	args = append([]string{
		"-n", kube.System, "exec", "daemonset/" + kube.DaemonSet, "--",
		"/usr/bin/tranche-node", "doctor", "--output=json",
	}, args...)
	out, err := exec.CommandContext(t.Context(), "kubectl", args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		exit = failed.ExitCode()
	} else {
		require.NoError(t, err)
	}
	require.NoError(t, json.Unmarshal(out, &report), "%s", out)
	for _, f := range report.Findings {
		t.Logf("%s: %s: %s -> %s", f.Level, f.Check, f.Seen, f.Remedy)
	}
	return exit, report
}

// about are the findings of a check.
func about(report doctor.Report, check string) []doctor.Finding {
	var found []doctor.Finding
	for _, f := range report.Findings {
		if f.Check == check {
			found = append(found, f)
		}
	}
	return found
}

func TestDoctorFindsNothingWrongWithTheNode(t *testing.T) {
	n := newTeam(t, "doctor")
	n.pod(t, "p", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
	exit, report := examine(t)
	require.Zero(t, exit)
	require.Zero(t, report.Count(doctor.Problem))
	require.Zero(t, report.Count(doctor.Warning))
	require.Equal(t, os.Getenv("TRANCHE_CLUSTER_NODE"), report.Node)
	require.Len(t, about(report, "cards"), cards)
	for check, says := range map[string]string{
		"container runtime":  "reads CDI specs in /var/run/cdi",
		"records":            "1 claim with shares: doctor/p-gpu-",
		"published cards":    "2 cards published",
		"other plugins":      "kubelet answers",
		"API server":         "Kubernetes v1.",
		"device classes":     "are there",
		"default policy":     "guaranteed-burst-share, for shares that name none (built in)",
		"admission policies": "are there and bound",
	} {
		found := about(report, check)
		require.Len(t, found, 1, check)
		require.Contains(t, found[0].Seen, says)
	}
}

func TestDoctorTellsThatTheRuntimeReadsOtherSpecs(t *testing.T) {
	exit, report := examine(t, "--cdi-root="+stateDir)
	require.Equal(t, 1, exit)
	found := about(report, "container runtime")
	require.Len(t, found, 1)
	require.Equal(t, doctor.Problem, found[0].Level)
	require.Contains(t, found[0].Seen, "and not in "+stateDir)
	require.Equal(t, 1, report.Count(doctor.Problem))
}

// What is mounted over a directory of the host later is not in the driver's
// container: only a new one has it.
func TestTheDriverStartsAgainWhenItsStateDirectoryIsCovered(t *testing.T) {
	published(t)
	covered := func(report doctor.Report) bool {
		found := about(report, "state directory")
		return len(found) == 1 && found[0].Level == doctor.Warning // it is in memory
	}
	var said string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(said)
		}
	})
	require.NoError(t, unix.Mount("tmpfs", stateDir, "tmpfs", 0, "mode=0755"))
	uncover := sync.OnceValue(func() error { return unix.Unmount(stateDir, unix.MNT_DETACH) })
	t.Cleanup(func() { _ = uncover() })
	seen := func(want bool) func() bool {
		return func() bool {
			out, err := kube.Kubectl(t.Context(), "-n", kube.System, "exec", "daemonset/"+kube.DaemonSet, "--",
				"/usr/bin/tranche-node", "doctor", "--output=json")
			said = out
			var report doctor.Report
			if json.Unmarshal([]byte(out), &report) != nil { // the container is starting
				return false
			}
			return err == nil && report.Count(doctor.Problem) == 0 && covered(report) == want
		}
	}
	require.Eventually(t, seen(true), 2*time.Minute, time.Second, "the driver did not take the new directory")
	require.NoError(t, uncover())
	require.Eventually(t, seen(false), 2*time.Minute, time.Second, "the driver did not take the old directory back")
	published(t)
}
