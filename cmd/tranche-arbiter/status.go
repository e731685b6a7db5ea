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

// statusHelp tells of every column of the tables, and of every value that is not plain.
const statusHelp = `status asks the tranche-arbiter that serves this node for its cards and shares. - stands for what
is not there, or cannot be known.

Of each card that has shares:
  CARD, MODEL   its UUID and product name
  FREE CORES    percent of it that no share holds, of 100; FREE OFFLINE: the same of offlineCores
  FREE MEMORY   what no share holds, of all that shares may have
  USED MEMORY   what all processes hold of it, as the card says
  SLICE         how long a share has it at a time while others wait
  HOLDER        the claim of the share that has it now; of an idle card, of the one that had it last
  SWITCHES      how often it went from one share to another

Of each share:
  CARD, NAMESPACE, CLAIM, REQUEST   whose it is
  POLICY        - for a whole card, which is divided among nobody
  CLASS         online, offline or none
  CORES         percent of the card, "offline" where they are offlineCores
  CEILING       its burst ceiling in force, in percent of the card
  LEASE         free: it is alone on the card and may use all of it
                open: it may launch work now
                closed: it may not, and has no work; closed,waits: it has, and waits for the card
                ...,draining: it was stopped, and what it has in flight is not done yet
                ...,withheld: the watchdog keeps it from the card, as the arbiter's log and an event say why
  RATE          the part of the card that it is entitled to now: nothing for one that has no work, and
                for an offline one that may not run
  MEMORY        what its processes are charged with, of its limit
  PIDS          its processes, as the node numbers them

Of each share, since the arbiter took it on:
  HELD          how long it had the card
  ENTITLED      how long it should have had it
  WANTED        how long it had work for it
  THROTTLED     how long of WANTED it did not have it
  PREEMPTED     how often the card was taken from it while it had work
  P50, P99      how long it took then until what it had in flight was done

A share that is alone on its card is not measured while its LEASE is free: RATE is - then, and so are
HELD, ENTITLED, WANTED and THROTTLED where that was always so, however much it computes.`

// newStatus makes the command that shows what the arbiter of this node knows.
func newStatus() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:          "status",
		Short:        "Show the cards of this node, who has shares of them and who has their compute now",
		Long:         statusHelp,
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
