// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/simcard"
)

// Defaults of the command line. Directories are those of tranche-node.
const (
	defaultStateDir        = "/var/lib/tranche"
	defaultRunDir          = "/run/tranche"
	defaultContextEstimate = "512Mi"
	defaultTolerance       = "64Mi"
	defaultInterval        = 250 * time.Millisecond
	defaultGrace           = 5 * time.Second
	defaultMetricsAddress  = ":9480"
)

// noSocket as --debug-socket switches it off.
const noSocket = "none"

// shortestInterval of the watchdog: to look more often would only cost time.
const shortestInterval = 10 * time.Millisecond

// config is what the command line says.
type config struct {
	stateDir, runDir, cardsDir  string
	driverRoot, driverRootMount string
	nvmlLibrary                 string
	contextEstimate             uint64
	watchdog                    arbiter.Watchdog
	metricsAddress              string
	debugSocket                 string // empty for none
	kubernetes                  bool
	kubeconfig, nodeName        string
}

// options are the command line.
type options struct {
	getenv func(string) string
	values config
	// Amounts of memory and the action, as they were given.
	contextEstimate, tolerance, action string
}

func newOptions(getenv func(string) string) *options { return &options{getenv: getenv} }

func (o *options) addTo(flags *pflag.FlagSet) {
	v := &o.values
	flags.StringVar(&v.stateDir, "state-dir", defaultStateDir, "`directory` in which tranche-node keeps shares")
	flags.StringVar(&v.runDir, "run-dir", defaultRunDir, "`directory` on a volatile file system, for what outlives this process but not a boot")
	flags.StringVar(&v.cardsDir, "cards-dir", "", "`directory` with simulated cards (default: cards in --run-dir)")
	flags.StringVar(&v.driverRoot, "driver-root", "/", "`directory` of the host that the graphics driver is installed under")
	flags.StringVar(&v.driverRootMount, "driver-root-mount", "", "`directory` where this process sees --driver-root (default: the same)")
	flags.StringVar(&v.nvmlLibrary, "nvml-library", "", "`file` to read NVIDIA cards with (default: libnvidia-ml.so.1 below --driver-root)")
	flags.StringVar(&o.contextEstimate, "context-estimate", defaultContextEstimate,
		"`memory` that a context is expected to take until one was measured; simulated cards say it themselves")
	flags.DurationVar(&v.watchdog.Interval, "watchdog-interval", defaultInterval, "`time` between two looks at what processes hold of a card")
	flags.StringVar(&o.action, "watchdog-action", string(arbiter.ActionEvent),
		"`what` is done about a share that holds more than its limit, or uses its card without the sharing runtime: "+
			"event tells the owner, withhold lets the share allocate and launch nothing as well, kill also ends the processes that are too much")
	flags.DurationVar(&v.watchdog.Grace, "watchdog-grace", defaultGrace, "`time` for which too much may be held; as much again before processes are killed")
	flags.StringVar(&o.tolerance, "watchdog-tolerance", defaultTolerance, "`memory` that a share may hold above its limit")
	flags.BoolVar(&v.watchdog.Uncharged, "watchdog-uncharged", false,
		"do not charge shares with what their card says they computed beyond their leases, such as where the card does not say it rightly")
	flags.StringVar(&v.metricsAddress, "metrics-address", defaultMetricsAddress, "`host:port` of /metrics, /readyz and /healthz, empty for none")
	flags.StringVar(&v.debugSocket, "debug-socket", "", "`file` of the socket by which tranche-arbiter status asks, none for none (default: "+nodeview.SocketName+" in --run-dir)")
	flags.BoolVar(&v.kubernetes, "kubernetes", true, "write events to the API server; without it they are in the log only")
	flags.StringVar(&v.kubeconfig, "kubeconfig", "", "`file` to reach the API server with; needed outside of a cluster only")
	flags.StringVar(&v.nodeName, "node-name", "", "`name` of this node, which events are about (default $NODE_NAME)")
}

// config is flags, environment and defaults together, validated.
func (o *options) config() (config, error) {
	c := o.values
	var problems []error
	for flag, dir := range map[string]string{
		"state-dir": c.stateDir, "run-dir": c.runDir, "driver-root": c.driverRoot,
		"debug-socket": cmp.Or(strings.TrimPrefix(c.debugSocket, noSocket), "/"),
		"cards-dir":    cmp.Or(c.cardsDir, "/"), "driver-root-mount": cmp.Or(c.driverRootMount, "/"), "nvml-library": cmp.Or(c.nvmlLibrary, "/"),
	} {
		if !filepath.IsAbs(dir) {
			problems = append(problems, fmt.Errorf("--%s: %q is not an absolute path", flag, dir))
		}
	}
	var err error
	if c.contextEstimate, err = bytesOf(o.contextEstimate); err != nil {
		problems = append(problems, fmt.Errorf("--context-estimate: %w", err))
	}
	if c.watchdog.Tolerance, err = bytesOf(o.tolerance); err != nil {
		problems = append(problems, fmt.Errorf("--watchdog-tolerance: %w", err))
	}
	c.watchdog.Action = arbiter.Action(o.action)
	if !slices.Contains(arbiter.Actions(), c.watchdog.Action) {
		problems = append(problems, fmt.Errorf("--watchdog-action: %q is not one of %q", o.action, arbiter.Actions()))
	}
	if c.watchdog.Interval < shortestInterval {
		problems = append(problems, fmt.Errorf("--watchdog-interval: %s is shorter than %s", c.watchdog.Interval, shortestInterval))
	}
	if c.watchdog.Grace < 0 {
		problems = append(problems, fmt.Errorf("--watchdog-grace: %s is negative", c.watchdog.Grace))
	}
	c.nodeName = cmp.Or(c.nodeName, o.getenv("NODE_NAME"))
	if c.kubernetes && c.nodeName == "" {
		problems = append(problems, errors.New("--node-name: the node's name is not known (set it, or $NODE_NAME, or --kubernetes=false)"))
	}
	c.cardsDir = cmp.Or(c.cardsDir, o.getenv(simcard.DirEnv), filepath.Join(c.runDir, "cards"))
	c.driverRootMount = cmp.Or(c.driverRootMount, c.driverRoot)
	if c.debugSocket = cmp.Or(c.debugSocket, filepath.Join(c.runDir, nodeview.SocketName)); c.debugSocket == noSocket {
		c.debugSocket = ""
	}
	if err := errors.Join(problems...); err != nil {
		return config{}, fmt.Errorf("check flags: %w", err)
	}
	return c, nil
}

// bytesOf reads an amount of memory as Kubernetes writes it.
func bytesOf(text string) (uint64, error) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of memory such as 512Mi: %w", text, err)
	}
	bytes, ok := quantity.AsInt64()
	if !ok || bytes < 0 {
		return 0, fmt.Errorf("%q is not a positive number of bytes", text)
	}
	return uint64(bytes), nil
}
