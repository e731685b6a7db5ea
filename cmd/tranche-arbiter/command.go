// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
)

// newCommand makes the root command, which serves the node.
func newCommand(getenv func(string) string) *cobra.Command {
	o := newOptions(getenv)
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:   "tranche-arbiter",
		Short: "Serve the shares of this node to the processes that use them",
		Long: "tranche-arbiter opens a socket for each share that tranche-node prepares, hands out the pages by\n" +
			"which the share's processes keep to its limits together, and follows which of them live. It\n" +
			"measures what cards hold for them and acts when somebody holds more than the share allows.\n\n" +
			"It must run in the host's PID namespace. A second one stands by until the first ends. SIGTERM\n" +
			"ends it cleanly: processes go on with the limits that they know, and find the next one.",
		Args:         cobra.NoArgs,
		Version:      version,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.config()
			if err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("set up logging: %w", err)
			}
			return run(klog.NewContext(cmd.Context(), klog.Background()), config)
		},
	}
	o.addTo(cmd.Flags())
	cmd.AddCommand(newStatus())
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}

const (
	// memoryTarget in bytes is what the process may take with many shares; the
	// collector works harder near it and never fails because of it.
	memoryTarget = 32 << 20
	// collectAt is the growth in percent after which memory is collected.
	collectAt = 40
	// threads that run Go code at once: the work is short and rare.
	threads = 4
)

// limitMemory keeps the process small, unless the environment says otherwise.
func limitMemory(getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryTarget)
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(threads, runtime.NumCPU()))
	}
}
