// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the tests expect")

func settings() Settings {
	return Settings{
		Work: "/tmp/work", Binaries: "/cache/bin", Runc: "/usr/sbin/runc",
		Cgroup: "/tranche-e2e-1", CDIDir: "/var/run/cdi", Verbosity: 2,
	}
}

func TestFilesAreGolden(t *testing.T) {
	t.Parallel()
	files, err := Files(settings())
	require.NoError(t, err)
	require.Equal(t, stages, files["kwok.yaml"])
	delete(files, "kwok.yaml")
	for name, content := range files {
		golden(t, filepath.Base(name), string(content))
	}
	require.Len(t, files, 4)
}

func TestArgsAreGolden(t *testing.T) {
	t.Parallel()
	s := settings()
	s.FeatureGates = "DRAConsumableCapacity=true"
	s.ExtraArgs = map[string][]string{Kubelet: {"--v=4"}}
	var all strings.Builder
	for _, component := range Components() {
		all.WriteString(component + "\n  " + strings.Join(Args(s, component), "\n  ") + "\n")
	}
	golden(t, "args.txt", all.String())
}

func TestPathsMayHoldAnything(t *testing.T) {
	t.Parallel()
	s := settings()
	s.Work = `/tmp/a "b" \c <d> #e`
	files, err := Files(s)
	require.NoError(t, err)
	var list struct {
		Plugins []struct {
			IPAM struct{ DataDir string }
		}
	}
	require.NoError(t, json.Unmarshal(files["cni/10-tranche.conflist"], &list))
	require.Equal(t, s.Data("cni"), list.Plugins[0].IPAM.DataDir)
	require.Contains(t, string(files["kubelet.yaml"]), `podLogsDir: "/tmp/a \"b\" \\c <d> #e/log/pods"`)
}

func TestFeatureGatesAreForKubernetesOnly(t *testing.T) {
	t.Parallel()
	s := settings()
	s.FeatureGates = "A=true"
	for _, component := range Components() {
		if component == Etcd || component == Containerd || component == FakeKubelet {
			require.NotContains(t, Args(s, component), "--feature-gates=A=true", component)
			continue
		}
		require.Contains(t, Args(s, component), "--feature-gates=A=true", component)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run go test -update and look at the difference")
}
