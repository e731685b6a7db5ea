// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// examine runs doctor beside a driver with that command line.
func examine(t *testing.T, driver []string, args ...string) (exit int, out, errs string) {
	t.Helper()
	d := newDoctorCommand(nothing)
	d.driver = filepath.Join(t.TempDir(), "cmdline")
	require.NoError(t, os.WriteFile(d.driver, []byte(strings.Join(driver, "\x00")+"\x00"), 0o600))
	root := newCommand(nothing)
	root.AddCommand(d.command())
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"doctor"}, args...))
	root.SetContext(t.Context())
	if err := root.Execute(); err != nil {
		require.NotZero(t, d.exit, "%v", err)
	}
	return d.exit, stdout.String(), stderr.String()
}

func TestDoctorIsUsedWrongly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"a flag that there is not":        {[]string{"--nod-name=x"}, "unknown flag: --nod-name"},
		"an argument":                     {[]string{"--node-name=x", "now"}, `unknown command "now"`},
		"no node name":                    {nil, "nodeName (--node-name or $NODE_NAME): Required"},
		"an output that there is not":     {[]string{"--node-name=x", "-o", "yaml"}, `"yaml" is neither table nor json`},
		"roots that do not go together":   {[]string{"--node-name=x", "--driver-root=/run/nvidia/driver", "--driver-root-mount=/"}, "mount it at a directory of its own"},
		"a configuration that is missing": {[]string{"--config=/does/not/exist"}, "read configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit, out, errs := examine(t, []string{"/sbin/init"}, tc.args...)
			require.Equal(t, exitWrongUse, exit)
			require.Contains(t, errs, tc.says)
			require.NotContains(t, out, "problem")
		})
	}
}

func TestDoctorsHelpLeadsToANode(t *testing.T) {
	t.Parallel()
	exit, out, _ := examine(t, nil, "--help")
	require.Zero(t, exit)
	require.Contains(t, out, "kubectl -n tranche-system get pods -o wide --field-selector spec.nodeName=NODE")
}

func TestDoctorBesideADriver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, fleet, fixture.Card(0).UUID), 0o600))
	p := start(t, "--sim-fleet="+path)
	p.eventually(t, "/readyz", http.StatusServiceUnavailable, "not registered with kubelet yet\n")
	p.register(t)
	p.eventually(t, "/readyz", http.StatusOK, "ok\n")
	require.Empty(t, p.prepare(t, fixture.Claim("c", fixture.Result{Request: "gpu", Cores: 10, Memory: "1Gi"})))
	driver := []string{
		"/usr/bin/tranche-node", "--v=2", "--node-name=" + fixture.Pool, "--kubelet-root=" + p.root + "/kubelet", "--cdi-root=" + p.root + "/cdi",
		"--state-dir", p.root + "/state", "--metrics-address=" + p.metrics, "--sim-fleet=" + path, "--driver-root=" + p.root,
		"--run-dir=" + p.root + "/run", "--runtime-dir=" + p.root + "/runtime", "--runtime-source=" + p.source,
	}
	exit, out, errs := examine(t, driver, "--output=json", "--cdi-root="+p.root+"/elsewhere")
	require.Empty(t, errs)
	require.Equal(t, exitProblem, exit, "this kubelet has no pod-resources socket")
	var report doctor.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, fixture.Pool, report.Node)
	seen := map[string]string{}
	for _, f := range report.Findings {
		seen[f.Check] += fmt.Sprintf("%s: %s\n", f.Level, f.Seen)
	}
	for check, says := range map[string]string{
		"container runtime":   "warning: no socket",
		"CDI directory":       "elsewhere: no such file",
		"state directory":     "can write to " + p.root + "/state",
		"kubelet's directory": "ok: can write to " + p.root + "/kubelet/plugins_registry",
		"driver":              "ok: it is registered with kubelet",
		"cards":               "ok: card " + string(fixture.Card(0).UUID) + " (index 0,",
		"other plugins":       "problem: list allocatable devices",
		"records":             "ok: 1 claim with shares: team/c",
		"sharing runtime":     "ok: this driver's version is installed",
		"arbiter":             "ok: the arbiter serves 1 share",
		"API server":          "warning: find the API server",
	} {
		require.Contains(t, seen[check], says, check)
	}
	require.Len(t, seen, 11)
}

func TestANodeWithoutCardsIsToldWhereTheyWereLookedFor(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "n") // t.TempDir leaves no room for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	for name, tc := range map[string]struct{ flag, says string }{
		"no driver":     {"--driver-root-mount=" + root, "NVML does not start (ERROR_LIBRARY_NOT_FOUND); its library was looked for below " + root},
		"no fleet file": {"--sim-fleet=" + root + "/none.yaml", "there is no fleet file " + root + "/none.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit, out, _ := examine(t, []string{"bash"}, "--node-name=x", "--kubelet-root="+root, "--state-dir="+root, "--cdi-root="+root, tc.flag)
			require.Equal(t, exitProblem, exit)
			require.Contains(t, out, tc.says)
		})
	}
}

func TestLikeDriver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		driver string
		given  []string
		want   string
	}{
		"what was not given is taken from the driver": {"/usr/bin/tranche-node\x00--v=4\x00--cdi-root=/driver's\x00", nil, "/driver's"},
		"what was given wins":                         {"/usr/bin/tranche-node\x00--cdi-root=/driver's\x00", []string{"--cdi-root=/given"}, "/given"},
		"another program's flags mean nothing":        {"/usr/bin/other\x00--cdi-root=/driver's\x00", nil, ""},
		"a kernel thread has no command line":         {"", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "cmdline")
			require.NoError(t, os.WriteFile(path, []byte(tc.driver), 0o600))
			o := newOptions(nothing)
			o.addTo(pflag.NewFlagSet("doctor", pflag.ContinueOnError))
			require.NoError(t, o.given.Parse(tc.given))
			require.NoError(t, likeDriver(path, o))
			require.Equal(t, tc.want, o.given.Lookup("cdi-root").Value.String())
		})
	}
	require.NoError(t, likeDriver("/does/not/exist", newOptions(nothing)))
}

func TestPolicyNames(t *testing.T) {
	t.Parallel()
	policies, bindings, err := policyNames()
	require.NoError(t, err)
	require.Contains(t, policies, "resourceslices.gpu.tranche.dev")
	require.Len(t, bindings, len(policies))
}
