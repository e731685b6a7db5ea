// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/cluster/internal/elfdeps"
)

func TestRunOptions(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "a.tar")
	require.NoError(t, os.WriteFile(archive, nil, 0o644))
	o, _, err := runOptions([]string{
		"--image", archive, "--arg", "kubelet=--v=4", "--arg", "kubelet=--max-pods=9",
		"--", "kubectl", "get", "--all-namespaces", "pods",
	})
	require.NoError(t, err)
	require.Equal(t, []string{"kubectl", "get", "--all-namespaces", "pods"}, o.Command)
	require.Equal(t, []string{archive}, o.Images)
	require.Equal(t, []string{"--v=4", "--max-pods=9"}, o.Settings.ExtraArgs["kubelet"])
	require.Equal(t, "/var/run/cdi", o.Settings.CDIDir)
}

func TestRunOptionsAreRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(pod, []byte("apiVersion: v1\nkind: Pod\n"), 0o600))
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"no command":              {nil, "run nothing"},
		"an image that is not":    {[]string{"--image", "/does/not/exist.tar", "--", "true"}, "/does/not/exist.tar"},
		"a component unknown":     {[]string{"--arg", "kube-proxy=--v=2", "--", "true"}, "parse --arg kube-proxy=--v=2"},
		"a scheduler that is not": {[]string{"--scheduler", "/does/not/exist", "--", "true"}, "find scheduler"},
		"no configuration":        {[]string{"--scheduler-config", "/does/not/exist", "--", "true"}, "read the scheduler's configuration"},
		"another configuration":   {[]string{"--scheduler-config", pod, "--", "true"}, "it is a Pod of v1, not a KubeSchedulerConfiguration"},
		"a manifest that is not":  {[]string{"--apply", "/does/not/exist.yaml", "--", "true"}, "find manifest: stat /does/not/exist.yaml"},
		"half an account":         {[]string{"--scheduler-account", "name", "--", "true"}, "parse --scheduler-account name: not NAMESPACE/NAME"},
		"an argument alone":       {[]string{"--arg", "kubelet", "--", "true"}, "parse --arg kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := runOptions(row.args)
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestExpandTakesDirectoriesApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	for _, name := range []string{"top", "a/b/deep"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	got, err := expand(dir, "/opt")
	require.NoError(t, err)
	require.ElementsMatch(t, []elfdeps.File{
		{Source: filepath.Join(dir, "top"), Path: "/opt/top"},
		{Source: filepath.Join(dir, "a/b/deep"), Path: "/opt/a/b/deep"},
	}, got)
	got, err = expand(filepath.Join(dir, "top"), "/bin/renamed")
	require.NoError(t, err)
	require.Equal(t, []elfdeps.File{{Source: filepath.Join(dir, "top"), Path: "/bin/renamed"}}, got)
}

func TestContentsRefusesRelativeTargets(t *testing.T) {
	t.Parallel()
	for _, pair := range []string{"/bin/sh", "/bin/sh=bin/sh"} {
		_, err := contents([]string{pair}, nil, nil)
		require.ErrorContains(t, err, "not SRC=DST", pair)
	}
}

func TestSourcesAreFoundFromHere(t *testing.T) {
	t.Parallel()
	dir, err := findSources()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "kube", "go.mod"))
}
