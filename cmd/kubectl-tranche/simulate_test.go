// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/replay"
	"github.com/tranche-dra/tranche/pkg/whatif"
)

const (
	nodesFile   = "../../tests/testdata/openb/nodes.csv"
	tasksFile   = "../../tests/testdata/openb/tasks.csv"
	clusterFile = "../../pkg/whatif/testdata/cluster.yaml"
	claimsFile  = "../../pkg/whatif/testdata/claims.yaml"
)

func simulate(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetArgs(append([]string{"simulate"}, args...))
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetContext(t.Context())
	err := cmd.Execute()
	return out.String(), err
}

func TestATraceIsReplayedAndDrawn(t *testing.T) {
	t.Parallel()
	plot := filepath.Join(t.TempDir(), "allocation.svg")
	args := []string{"--nodes", nodesFile, "--tasks", tasksFile, "--seeds", "42,44-45", "--policy", "spread/binpack,fragmentation", "--plot", plot}
	table, err := simulate(t, "", args...)
	require.NoError(t, err)
	require.Contains(t, table, "31 nodes, 147 cards; 204 tasks in the trace, 130.00 % of all compute asked for; mean of 3 replays")
	for _, policy := range []string{"spread/binpack", "fragmentation"} {
		require.Contains(t, table, "\n"+policy)
	}
	picture, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(picture), "fragmentation (")

	text, err := simulate(t, "", append(args, "--json")...)
	require.NoError(t, err)
	var report replay.Report
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	require.Equal(t, []uint64{42, 44, 45}, report.Seeds)
	require.Len(t, report.Policies, 2)
	require.Len(t, report.Policies[0].Curve, 130)
	require.Greater(t, report.Policies[1].AtEnd, report.Policies[0].AtEnd)
}

func TestAClusterIsReadFromStandardInput(t *testing.T) {
	t.Parallel()
	cluster, err := os.ReadFile(clusterFile)
	require.NoError(t, err)
	table, err := simulate(t, string(cluster), "--cluster", "-", "--claims", claimsFile, "--count", "3")
	require.NoError(t, err)
	require.Contains(t, table, "nodes: 3; cards: 5; claims asked for: 12")
	require.Contains(t, table, "team/card, under every policy: no card is unused")

	text, err := simulate(t, string(cluster), "--cluster=-", "-o", "json")
	require.NoError(t, err)
	var report whatif.Report
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	require.Equal(t, 1, report.Asked, "the claim that waits")
}

// part is a class of one's own, as kubectl prints it, and a claim of it.
const part = `
---
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata: {name: a30-part.tranche.dev}
  spec:
    selectors: [{cel: {expression: 'device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].productName == "NVIDIA A30"'}}]
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata: {namespace: team, name: part}
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: a30-part.tranche.dev, capacity: {requests: {cores: "30", memory: 4Gi}}}}]}}
`

func TestClassesOfOnesOwnAreSimulated(t *testing.T) {
	t.Parallel()
	cluster, err := os.ReadFile(clusterFile)
	require.NoError(t, err)
	table, err := simulate(t, string(cluster)+part, "--cluster", "-", "--policy", "binpack")
	require.NoError(t, err)
	require.Regexp(t, `team/part +binpack +1 of 1 +node-a: \d\n`, table)
}

func TestClaimsOfOtherDriversAreInNobodysWay(t *testing.T) {
	t.Parallel()
	const nic = "\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: default, name: nic}, " +
		"spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}]}}}\n"
	cluster, err := os.ReadFile(clusterFile)
	require.NoError(t, err)
	table, err := simulate(t, string(cluster)+nic, "--cluster", "-", "--policy", "binpack")
	require.NoError(t, err)
	require.Contains(t, table, "claims asked for: 1\n")
	require.Contains(t, table, `left out: claim default/nic: request nic: device class "nic.example.com"`)

	named := filepath.Join(t.TempDir(), "nic.yaml")
	require.NoError(t, os.WriteFile(named, []byte(nic), 0o600))
	_, err = simulate(t, string(cluster), "--cluster", "-", "--claims", named)
	require.ErrorContains(t, err, `claim default/nic: request nic: device class "nic.example.com"`)
}

func TestAPodWithALimitIsSimulated(t *testing.T) {
	t.Parallel()
	const plain = "\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: team, name: plain}, spec: {containers: [{name: main, resources: {limits: {tranche.dev/gpu: 1}}}]}}\n"
	cluster, err := os.ReadFile(clusterFile)
	require.NoError(t, err)
	table, err := simulate(t, string(cluster)+plain, "--cluster", "-", "--policy", "binpack")
	require.NoError(t, err)
	require.Regexp(t, `team/plain +binpack +1 of 1 +node-[bc]: 0\n`, table)
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	ofTrace := []string{"--nodes", nodesFile, "--tasks", tasksFile}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"nothing to simulate":     {nil, "either --nodes and --tasks, or --cluster is needed"},
		"both":                    {append([]string{"--cluster", clusterFile}, ofTrace...), "either --nodes and --tasks, or --cluster is needed"},
		"nodes alone":             {[]string{"--nodes", nodesFile}, "--nodes and --tasks go together"},
		"claims of a trace":       {append([]string{"--claims", claimsFile}, ofTrace...), "--claims goes with --cluster"},
		"a plot of a cluster":     {[]string{"--cluster", clusterFile, "--plot", "a.svg"}, "--plot goes with --nodes and --tasks"},
		"a picture of one's own":  {append([]string{"--plot", "a.gif"}, ofTrace...), `--plot: "a.gif" ends neither in .svg nor in .png`},
		"no such policy":          {append([]string{"--policy", "tight"}, ofTrace...), `--policy: policy "tight": NODE/CARD is right`},
		"no such form":            {append([]string{"-o", "yaml"}, ofTrace...), `--output: "yaml" is neither table nor json`},
		"no load":                 {append([]string{"--load", "0"}, ofTrace...), "--load: 0 is not above 0"},
		"a load that is no load":  {append([]string{"--load", "NaN"}, ofTrace...), "--load: NaN is not above 0"},
		"no copies":               {[]string{"--cluster", clusterFile, "--count", "0"}, "--count: 0 is not from 1 to 1000000"},
		"seeds that go backwards": {append([]string{"--seeds", "51-42"}, ofTrace...), `--seeds: "51-42": numbers and ranges divided by commas are right`},
		"too many seeds":          {append([]string{"--seeds", "0-4294967295"}, ofTrace...), "are more than 1000"},
		"no such file":            {[]string{"--nodes", "none.csv", "--tasks", tasksFile}, "none.csv"},
		"the wrong file":          {[]string{"--nodes", tasksFile, "--tasks", tasksFile}, tasksFile + ":1:1: column is missing: gpu"},
		"copies of a trace":       {append([]string{"--count", "3"}, ofTrace...), "--count goes with --cluster"},
		"seeds of a cluster":      {[]string{"--cluster", clusterFile, "--seeds", "1"}, "--seeds goes with --nodes and --tasks"},
		"a load of a cluster":     {[]string{"--cluster", clusterFile, "--load", "90"}, "--load goes with --nodes and --tasks"},
		"a plot into nowhere":     {append([]string{"--plot", "no/such/a.svg"}, ofTrace...), "draw plot: open no/such/a.svg"},
		"a load below all tasks":  {append([]string{"--load", "0.0001"}, ofTrace...), "asks for more than 0.0001 % of all compute"},
		"a word too many":         {append([]string{"now"}, ofTrace...), "now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := simulate(t, "", tc.args...)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
