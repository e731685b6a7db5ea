// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/arbiter"
)

// parse is the configuration of a command line.
func parse(t *testing.T, env map[string]string, args ...string) (config, error) {
	t.Helper()
	o := newOptions(func(name string) string { return env[name] })
	flags := pflag.NewFlagSet("tranche-arbiter", pflag.ContinueOnError)
	o.addTo(flags)
	require.NoError(t, flags.Parse(args))
	return o.config()
}

func TestConfig(t *testing.T) {
	t.Parallel()
	node := map[string]string{"NODE_NAME": "node1"}
	standard := config{
		stateDir: "/var/lib/tranche", runDir: "/run/tranche", cardsDir: "/run/tranche/cards", driverRoot: "/", driverRootMount: "/",
		contextEstimate: 512 << 20, metricsAddress: ":9480", kubernetes: true, nodeName: "node1", debugSocket: "/run/tranche/debug.sock",
		watchdog: arbiter.Watchdog{Interval: 250 * time.Millisecond, Grace: 5 * time.Second, Tolerance: 64 << 20, Action: arbiter.ActionEvent},
	}
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want func(*config)
	}{
		"nothing given: defaults and the environment": {node, nil, func(*config) {}},
		"every flag has its place": {nil, []string{
			"--state-dir=/1", "--run-dir=/2", "--cards-dir=/3", "--driver-root=/4", "--driver-root-mount=/5", "--nvml-library=/6",
			"--context-estimate=300Mi", "--watchdog-interval=1s", "--watchdog-action=kill", "--watchdog-grace=2s", "--watchdog-tolerance=1Gi",
			"--watchdog-uncharged", "--metrics-address=", "--kubernetes=false", "--kubeconfig=/7", "--node-name=named", "--debug-socket=/8",
		}, func(c *config) {
			*c = config{
				stateDir: "/1", runDir: "/2", cardsDir: "/3", driverRoot: "/4", driverRootMount: "/5", nvmlLibrary: "/6",
				contextEstimate: 300 << 20, kubeconfig: "/7", nodeName: "named", debugSocket: "/8",
				watchdog: arbiter.Watchdog{Interval: time.Second, Grace: 2 * time.Second, Tolerance: 1 << 30, Action: arbiter.ActionKill, Uncharged: true},
			}
		}},
		"cards and the debug socket are in the run directory": {node, []string{"--run-dir=/volatile"}, func(c *config) {
			c.runDir, c.cardsDir, c.debugSocket = "/volatile", "/volatile/cards", "/volatile/debug.sock"
		}},
		"no debug socket": {node, []string{"--debug-socket=none"}, func(c *config) { c.debugSocket = "" }},
		"unless the environment says another place": {
			map[string]string{"NODE_NAME": "node1", "TRANCHE_SIM_CARDS": "/cards"}, nil, func(c *config) { c.cardsDir = "/cards" },
		},
		"the driver is mounted where it is": {node, []string{"--driver-root=/run/nvidia/driver"}, func(c *config) {
			c.driverRoot, c.driverRootMount = "/run/nvidia/driver", "/run/nvidia/driver"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := standard
			tc.want(&want)
			got, err := parse(t, tc.env, tc.args...)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestFlagsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		says []string
	}{
		"a path that depends on where the program starts": {
			[]string{"--state-dir=state", "--run-dir=run", "--nvml-library=libnvidia-ml.so.1"},
			[]string{`--state-dir: "state" is not an absolute path`, `--run-dir: "run"`, `--nvml-library: "libnvidia-ml.so.1"`},
		},
		"memory in words":    {[]string{"--context-estimate=much"}, []string{`--context-estimate: "much" is not an amount of memory such as 512Mi`}},
		"memory below zero":  {[]string{"--watchdog-tolerance=-1Mi"}, []string{`--watchdog-tolerance: "-1Mi" is not a positive number of bytes`}},
		"an unknown action":  {[]string{"--watchdog-action=shout"}, []string{`--watchdog-action: "shout" is not one of ["event" "withhold" "kill"]`}},
		"no pause":           {[]string{"--watchdog-interval=0"}, []string{"--watchdog-interval: 0s is shorter than 10ms"}},
		"a grace before now": {[]string{"--watchdog-grace=-1s"}, []string{"--watchdog-grace: -1s is negative"}},
		"events about nobody": {
			[]string{"--node-name="}, []string{"--node-name: the node's name is not known (set it, or $NODE_NAME, or --kubernetes=false)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, nil, tc.args...)
			for _, text := range tc.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}
