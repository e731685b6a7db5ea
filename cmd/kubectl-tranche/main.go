// SPDX-License-Identifier: Apache-2.0

// Command kubectl-tranche is what people ask about a cluster of shared cards:
// kubectl finds it on the path as "kubectl tranche".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"
)

// version is set when a release is linked.
var version = "dev"

func main() { os.Exit(execute()) }

// execute exists because os.Exit runs no deferred calls.
func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	cmd := newCommand()
	cmd.SetContext(ctx)
	if err := cli.RunNoErrOutput(cmd); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-tranche",
		Short: "Look at shared cards and try placements out",
		// kubectl calls it so; help should say what people type.
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tranche"},
		Args:         cobra.NoArgs,
		Version:      version,
		SilenceUsage: true,
	}
	cmd.AddCommand(newSimulate())
	return cmd
}
