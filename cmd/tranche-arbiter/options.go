// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dra/tranche/pkg/simcard"
)

// Defaults of the command line. Directories are those of tranche-node.
const (
	defaultStateDir        = "/var/lib/tranche"
	defaultRunDir          = "/run/tranche"
	defaultContextEstimate = "512Mi"
)

// config is what the command line says.
type config struct {
	stateDir, runDir, cardsDir  string
	driverRoot, driverRootMount string
	nvmlLibrary                 string
	contextEstimate             uint64
}

// options are the command line.
type options struct {
	getenv          func(string) string
	values          config
	contextEstimate string
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
}

// config is flags, environment and defaults together, validated.
func (o *options) config() (config, error) {
	c := o.values
	var problems []error
	for flag, dir := range map[string]string{
		"state-dir": c.stateDir, "run-dir": c.runDir, "driver-root": c.driverRoot,
	} {
		if !filepath.IsAbs(dir) {
			problems = append(problems, fmt.Errorf("--%s: %q is not an absolute path", flag, dir))
		}
	}
	var err error
	if c.contextEstimate, err = bytesOf(o.contextEstimate); err != nil {
		problems = append(problems, fmt.Errorf("--context-estimate: %w", err))
	}
	if c.cardsDir == "" {
		c.cardsDir = o.getenv(simcard.DirEnv)
	}
	if c.cardsDir == "" {
		c.cardsDir = filepath.Join(c.runDir, "cards")
	}
	if c.driverRootMount == "" {
		c.driverRootMount = c.driverRoot
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
