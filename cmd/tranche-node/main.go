// SPDX-License-Identifier: Apache-2.0

// Command tranche-node is the DRA driver of one node: it publishes the node's
// cards and prepares the shares that pods hold of them.
package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"
)

// version is set when a release is linked.
var version = "dev"

func main() { os.Exit(execute()) }

// execute exists because os.Exit runs no deferred calls.
func execute() int {
	limitMemory(os.Getenv)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	cmd := newCommand(os.Getenv)
	cmd.SetContext(ctx)
	doctor := newDoctorCommand(os.Getenv)
	cmd.AddCommand(doctor.command(), newInstallCommand())
	return max(cli.Run(cmd), doctor.exit)
}
