// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/control"
)

// shortNames are what people call the components.
var shortNames = map[string]string{
	"apiserver":          "kube-apiserver",
	"controller-manager": "kube-controller-manager",
	"scheduler":          "kube-scheduler",
}

func ctl(args []string) (int, error) {
	flags := flag.NewFlagSet("ctl", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), `usage: tranche-cluster ctl VERB [COMPONENT]
  status                show every component
  stop COMPONENT        SIGTERM; it stays away
  start COMPONENT       start it and wait until it is ready
  restart COMPONENT     stop, then start
  kill COMPONENT        SIGKILL, then start
COMPONENT: etcd, apiserver, controller-manager, scheduler, containerd, kubelet
`)
	}
	socket := flags.String("socket", os.Getenv("TRANCHE_CLUSTER_SOCKET"), "the cluster's control socket")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if *socket == "" {
		return 2, errors.New("find the cluster's control: TRANCHE_CLUSTER_SOCKET is not set; run inside 'tranche-cluster run'")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	client := control.NewClient(*socket)
	switch {
	case flags.NArg() == 1 && flags.Arg(0) == "status":
		return 0, status(ctx, client)
	case flags.NArg() == 2:
		component := flags.Arg(1)
		if full, ok := shortNames[component]; ok {
			component = full
		}
		if err := client.Do(ctx, flags.Arg(0), component); err != nil {
			return 1, err
		}
		return 0, nil
	}
	flags.Usage()
	return 2, nil
}

func status(ctx context.Context, client *control.Client) error {
	states, err := client.Status(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tSTARTS")
	for _, s := range states {
		state := "stopped"
		if s.Running {
			state = "running"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", s.Name, state, s.PID, s.Starts)
	}
	return table.Flush()
}
