// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestASchedulersConfigurationIsMadeOneForThisCluster(t *testing.T) {
	t.Parallel()
	s := settings()
	s.SchedulerConfig = head + `
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 50, contentType: application/json}
leaderElection: {leaderElect: true, resourceName: mine}
profiles: [{schedulerName: one}, {schedulerName: two}]
`
	files, err := Files(s)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, yaml.Unmarshal(files["scheduler.yaml"], &got))
	require.Equal(t, map[string]any{
		"apiVersion":       "kubescheduler.config.k8s.io/v1",
		"kind":             "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": s.PKI("kube-scheduler.kubeconfig"), "qps": 50, "contentType": "application/json"},
		"leaderElection":   map[string]any{"leaderElect": false, "resourceName": "mine"},
		"profiles":         []any{map[string]any{"schedulerName": "one"}, map[string]any{"schedulerName": "two"}},
	}, got)
}

func TestAnotherDocumentIsNoSchedulersConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: KubeSchedulerConfiguration\n": "of v1, not",
		"apiVersion: kubescheduler.config.k8s.io/v1\n":       "a <nil> of",
		head + "---\n" + head:                                "more than one document",
		head + "leaderElection: [no]\n":                      "leaderElection is not a mapping",
		"[1, 2]":                                             "read the scheduler's configuration",
	} {
		s := settings()
		s.SchedulerConfig = text
		_, err := Files(s)
		require.ErrorContains(t, err, want, text)
	}
}

func TestAnotherSchedulerTakesTheNameOfTheUsualOne(t *testing.T) {
	t.Parallel()
	s := settings()
	require.Equal(t, "/cache/bin/kube-scheduler", Program(s, Scheduler))
	s.Scheduler = "/build/tranche-scheduler"
	require.Equal(t, "/build/tranche-scheduler", Program(s, Scheduler))
	require.Equal(t, "/cache/bin/kubelet", Program(s, Kubelet))
}
