// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tranche-dra/tranche/cmd/tranche-scheduler/plugin"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/placement"
)

// shipped is the configuration as kube-scheduler reads it.
func shipped(t *testing.T) *config.KubeSchedulerConfiguration {
	t.Helper()
	logger, _ := ktesting.NewTestContext(t)
	loaded, err := options.LoadConfigFromFile(logger, filepath.Join("..", "..", "deployments", "static", "scheduler", "config.yaml"))
	require.NoError(t, err)
	return loaded
}

func TestShippedProfilesAreTheCombinations(t *testing.T) {
	t.Parallel()
	want := map[string]placement.Policies{
		"default-scheduler":     placement.Default(),
		"tranche-fragmentation": {Node: placement.Fragmentation, Card: placement.Fragmentation},
	}
	for _, node := range []placement.Policy{placement.Binpack, placement.Spread} {
		for _, card := range []placement.Policy{placement.Binpack, placement.Spread} {
			want["tranche-"+string(node)+"-"+string(card)] = placement.Policies{Node: node, Card: card}
		}
	}
	got := map[string]placement.Policies{}
	for _, p := range shipped(t).Profiles {
		for _, c := range p.PluginConfig {
			if c.Name != plugin.Name {
				continue
			}
			raw, ok := c.Args.(*runtime.Unknown)
			require.True(t, ok, "%T", c.Args)
			args, err := v1alpha1.DecodeTrancheArgs(raw.Raw)
			require.NoError(t, err)
			require.Empty(t, args.Validate(nil))
			got[p.SchedulerName] = placement.Policies{Node: args.NodePolicy, Card: args.CardPolicy}
		}
	}
	require.Equal(t, want, got)
}

// One process only may allocate, so the lease is that of kube-scheduler.
func TestShippedLeaseIsThatOfKubeScheduler(t *testing.T) {
	t.Parallel()
	lease := shipped(t).LeaderElection
	require.True(t, lease.LeaderElect)
	require.Equal(t, "kube-system/kube-scheduler", lease.ResourceNamespace+"/"+lease.ResourceName)
}
