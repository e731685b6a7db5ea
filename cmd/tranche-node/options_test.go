// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/share"
)

func nothing(string) string { return "" }

// parse is the configuration of a command line, with a file where one is given.
func parse(t *testing.T, file string, env map[string]string, args ...string) (*options, *v1alpha1.NodeConfig, error) {
	t.Helper()
	o := newOptions(func(name string) string { return env[name] })
	flags := pflag.NewFlagSet("tranche-node", pflag.ContinueOnError)
	o.addTo(flags)
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
	}
	require.NoError(t, flags.Parse(args))
	config, err := o.config()
	return o, config, err
}

const header = "apiVersion: tranche.dev/v1alpha1\nkind: NodeConfig\n"

func TestConfig(t *testing.T) {
	t.Parallel()
	env := map[string]string{"NODE_NAME": "from-env", "POD_UID": "pod-from-env"}
	for name, tc := range map[string]struct {
		file string
		args []string
		want func(*testing.T, *options, *v1alpha1.NodeConfig)
	}{
		"nothing given: defaults and the environment": {want: func(t *testing.T, o *options, c *v1alpha1.NodeConfig) {
			require.Equal(t, "from-env", c.NodeName)
			require.Equal(t, "pod-from-env", o.podUID)
			require.Equal(t, v1alpha1.DefaultKubeletRoot, c.KubeletRoot)
			require.Equal(t, v1alpha1.DefaultSlotsPerCard, *c.SlotsPerCard)
			require.Equal(t, v1alpha1.DefaultPolicy, c.DefaultPolicy)
			require.Equal(t, "built in", o.defaultPolicyBy)
			require.Equal(t, ":9478", *c.MetricsAddress)
			require.False(t, c.ForceOldKubernetes)
		}},
		"a file": {file: header + "nodeName: from-file\nslotsPerCard: 8\ndefaultPolicy: fixed-share\n", want: func(t *testing.T, o *options, c *v1alpha1.NodeConfig) {
			require.Equal(t, "from-file", c.NodeName)
			require.Equal(t, 8, *c.SlotsPerCard)
			require.Equal(t, share.Fixed, c.DefaultPolicy)
			require.Equal(t, "file "+o.file, o.defaultPolicyBy)
		}},
		"flags win over the file": {
			file: header + "nodeName: from-file\nslotsPerCard: 8\ncdiRoot: /file/cdi\nforceOldKubernetes: true\n",
			args: []string{"--node-name=from-flag", "--slots=4", "--metrics-address=", "--force-old-kubernetes=false", "--pod-uid=pod"},
			want: func(t *testing.T, o *options, c *v1alpha1.NodeConfig) {
				require.Equal(t, "from-flag", c.NodeName)
				require.Equal(t, 4, *c.SlotsPerCard)
				require.Empty(t, *c.MetricsAddress, "an empty address switches it off")
				require.Equal(t, "/file/cdi", c.CDIRoot, "a flag that was not given changes nothing")
				require.False(t, c.ForceOldKubernetes)
				require.Equal(t, "pod", o.podUID)
			},
		},
		"every flag has its place": {
			args: []string{
				"--kubelet-root=/1", "--cdi-root=/2", "--state-dir=/3", "--driver-root=/4", "--driver-root-mount=/5", "--cards=sim", "--sim-fleet=/6",
				"--default-policy=best-effort", "--health-address=:1", "--force-old-kubernetes",
				"--run-dir=/7", "--runtime-dir=/8", "--runtime-source=/9", "--arbiter-timeout=1s",
			},
			want: func(t *testing.T, o *options, c *v1alpha1.NodeConfig) {
				require.Equal(t, "flag --default-policy", o.defaultPolicyBy)
				require.Equal(t, []string{"/1", "/2", "/3", "/4", "/5", "/6"}, []string{c.KubeletRoot, c.CDIRoot, c.StateDir, c.DriverRoot, c.DriverRootMount, c.SimFleet})
				require.Equal(t, []string{"/7", "/8", "/9"}, []string{c.RunDir, c.RuntimeDir, c.RuntimeSource})
				require.Equal(t, time.Second, c.ArbiterTimeout.Duration)
				require.Equal(t, v1alpha1.CardsSim, c.CardSource)
				require.Equal(t, share.BestEffort, c.DefaultPolicy)
				require.Equal(t, ":1", *c.HealthAddress)
				require.True(t, c.ForceOldKubernetes)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, config, err := parse(t, tc.file, env, tc.args...)
			require.NoError(t, err)
			tc.want(t, o, config)
		})
	}
}

func TestConfigThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file string
		args []string
		err  string
	}{
		"no node name":                 {err: "nodeName (--node-name or $NODE_NAME): Required value"},
		"a file that is missing":       {args: []string{"--config=/does/not/exist"}, err: "read configuration: open /does/not/exist"},
		"a field that is not known":    {file: header + "slots: 4\n", err: `unknown field "slots"`},
		"a field given twice":          {file: header + "nodeName: a\nnodeName: b\n", err: "nodeName"},
		"a flag with a bad value":      {args: []string{"--node-name=n", "--slots=0"}, err: "slotsPerCard (--slots): Invalid value: 0"},
		"a source that does not exist": {args: []string{"--node-name=n", "--cards=usb"}, err: "cardSource (--cards): Unsupported value: \"usb\""},
		"simulation without a fleet":   {args: []string{"--node-name=n", "--cards=sim"}, err: "simFleet (--sim-fleet): Required value"},
		"a field without a flag":       {file: header + "nodeName: node1\nstaleGrace: 0s\n", err: "staleGrace: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := parse(t, tc.file, nil, tc.args...)
			require.ErrorContains(t, err, tc.err)
		})
	}
}

//nolint:paralleltest // the command sets up logging, which is one for the process
func TestTheCommandLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args     []string
		contains string
		err      string
	}{
		"--help names the flags":                   {args: []string{"--help"}, contains: "--sim-fleet file"},
		"--help has a word for what --cards takes": {args: []string{"--help"}, contains: "--cards source "},
		"--help lists the policies":                {args: []string{"--help"}, contains: "best-effort, fixed-share, guaranteed-burst-share or native-burst-share"},
		"--version":                                {args: []string{"--version"}, contains: "tranche-node version dev"},
		"an argument is refused":                   {args: []string{"serve"}, err: `unknown command "serve"`},
		"an unknown flag is refused":               {args: []string{"--slot=3"}, err: "unknown flag: --slot"},
		"a kubeconfig that is not there":           {args: []string{"--node-name=n", "--kubeconfig=/none"}, err: "find the API server"},
		"a configuration that is no good":          {args: []string{"--node-name=n", "--cards=usb"}, err: "check configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { require.NoError(t, logsapi.ResetForTest(nil)) })
			var out bytes.Buffer
			cmd := newCommand(nothing)
			cmd.SetArgs(tc.args)
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Contains(t, out.String(), tc.contains)
		})
	}
}

func TestEveryFieldThatAFlagSetsIsOne(t *testing.T) {
	t.Parallel()
	o := newOptions(nothing)
	o.addTo(pflag.NewFlagSet("tranche-node", pflag.ContinueOnError))
	fields := map[string]bool{}
	for f := range reflect.TypeFor[v1alpha1.NodeConfig]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = true
	}
	for _, f := range o.overrides {
		require.True(t, fields[f.field], "--%s sets %s", f.flag, f.field)
	}
}
