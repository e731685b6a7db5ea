// SPDX-License-Identifier: Apache-2.0

// Command tranche-arbiter serves the shares of one node to the processes that
// use them, and watches that nobody holds more of a card than the share allows.
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
	return cli.Run(cmd)
}
