// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() { os.Exit(start()) }

// start exists because os.Exit runs no deferred calls.
func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	// Warnings of the client library would be scattered over the story.
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	if err := newCommand(connect).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		return 1
	}
	return 0
}

// connector reaches the API server that a kubeconfig names, or, where none is
// named, the one that kubectl would reach.
type connector func(kubeconfig string) (kubernetes.Interface, error)

func newCommand(connect connector) *cobra.Command {
	d := demo{program: program(), testCluster: os.Getenv("TRANCHE_CLUSTER_CTL") != ""}
	var kubeconfig, directory string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Share simulated cards among pods and show who got what",
		Args:  cobra.NoArgs,
		// An error here is about the cluster, not about the command line.
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if d.client, err = connect(kubeconfig); err != nil {
				return err
			}
			tool := kubectl{dir: directory, program: "kubectl", kubeconfig: kubeconfig}
			d.kubectl, d.talk = tool.run, tool.talk
			d.say = newNarrator(cmd.OutOrStdout(), time.Now)
			return d.run(cmd.Context())
		},
	}
	cmd.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "", "`file` to reach the API server with (default: as kubectl does)")
	flags := cmd.Flags()
	flags.StringVar(&directory, "directory", ".", "root of the repository")
	flags.DurationVar(&d.patience, "patience", 2*time.Minute, "how long each single wait may take")
	flags.BoolVar(&d.keep, "keep", false, "the cluster stays: end with what to try in it")
	cmd.AddCommand(newShow(&kubeconfig, connect))
	return cmd
}

func newShow(kubeconfig *string, connect connector) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show which pod holds what on which card",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := connect(*kubeconfig)
			if err != nil {
				return err
			}
			snapshot, err := look(cmd.Context(), client)
			if err != nil {
				return err
			}
			if asJSON {
				return snapshot.WriteJSON(cmd.OutOrStdout())
			}
			return snapshot.WriteTables(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "for programs")
	return cmd
}

// program is how to call this program from the working directory.
func program() string {
	executable, err := os.Executable()
	if err != nil {
		return "demo"
	}
	directory, err := os.Getwd()
	if err != nil {
		return executable
	}
	if short, err := filepath.Rel(directory, executable); err == nil && filepath.IsLocal(short) {
		return short
	}
	return executable
}

// errNoCluster says that nothing tells where the API server is.
var errNoCluster = errors.New("no cluster is named: give --kubeconfig or set KUBECONFIG, or run this in the shell of make demo KEEP=1")

func connect(kubeconfig string) (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("read kubeconfig: %w", errNoCluster)
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // nobody else is kept waiting
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return client, nil
}
