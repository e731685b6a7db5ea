// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dra/tranche/pkg/nodeview"
)

// statusLimit is how long the arbiter may take to answer.
const statusLimit = 10 * time.Second

// newStatus makes the command that shows what the arbiter of this node knows.
func newStatus() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cards of this node, who has shares of them and who has their compute now",
		Long: "status asks the tranche-arbiter that serves this node for its cards and shares: free compute\n" +
			"(online and offline) and memory, time slice, and for each share its policy, class, limits, lease,\n" +
			"what it was entitled to and got, its memory and its processes.\n\n" +
			"Of a card, SLICE is how long a share has it at a time while others wait, HOLDER who has it now.\n" +
			"Of a share, CEILING is its burst ceiling in force, in percent of the card; LEASE is open while it may\n" +
			"launch work, free where nobody else is there, else closed; RATE is the part of the card that it is\n" +
			"entitled to now: nothing for one that has no work, and for an offline one that may not run. Since\n" +
			"the arbiter took it on: HELD is how long it had the card, WANTED how long it had work for it,\n" +
			"THROTTLED how long of that it had to wait, PREEMPTED how often the card was taken from it while it\n" +
			"had work, and P50 and P99 how long it took each time until what it had in flight was done.\n" +
			"A share that is alone on its card is not measured: RATE is - then, and so are HELD, WANTED and\n" +
			"THROTTLED where it has always been alone, however much it computes.",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), statusLimit)
			defer cancel()
			node, err := nodeview.Get(ctx, socket)
			if err != nil {
				return err
			}
			switch output {
			case "table":
				return node.WriteTables(cmd.OutOrStdout())
			case "json":
				return node.WriteJSON(cmd.OutOrStdout())
			}
			return fmt.Errorf("check flags: --output: %q is neither table nor json", output)
		},
	}
	cmd.Flags().StringVar(&socket, "debug-socket", filepath.Join(defaultRunDir, nodeview.SocketName), "`file` of the arbiter's socket")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`form` of the answer: table or json")
	return cmd
}
