// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
)

// newCommand makes the root command, which serves the node. Other things that
// this binary can do are sub-commands.
func newCommand(getenv func(string) string) *cobra.Command {
	o := newOptions(getenv)
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:   "tranche-node",
		Short: "Publish this node's cards and prepare the shares that pods hold of them",
		Long: "tranche-node is the DRA driver gpu.tranche.dev of one node. It publishes the node's cards,\n" +
			"prepares shares of them for pods, and mends what is missing. SIGTERM ends it cleanly.",
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
			ctx := klog.NewContext(cmd.Context(), klog.Background())
			clients, err := connect(o, config.NodeName)
			if err != nil {
				return err
			}
			return run(ctx, o, config, clients)
		},
	}
	o.addTo(cmd.Flags())
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}
