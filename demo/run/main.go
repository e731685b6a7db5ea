// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	if err := newCommand(os.Getenv("KUBECONFIG")).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		return 1
	}
	return 0
}

func newCommand(kubeconfig string) *cobra.Command {
	var directory string
	var patience time.Duration
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Share simulated cards among pods and show who got what",
		Args:  cobra.NoArgs,
		// An error here is about the cluster, not about the command line.
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := connect(kubeconfig)
			if err != nil {
				return err
			}
			d := demo{
				client:   client,
				kubectl:  kubectl{dir: directory, program: "kubectl"}.run,
				say:      newNarrator(cmd.OutOrStdout(), time.Now),
				patience: patience,
				keep:     keep,
			}
			return d.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", kubeconfig, "`file` to reach the API server with")
	flags.StringVar(&directory, "directory", ".", "root of the repository")
	flags.DurationVar(&patience, "patience", 2*time.Minute, "how long each single wait may take")
	flags.BoolVar(&keep, "keep", false, "the cluster stays: end with what to try in it")
	return cmd
}

func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // nobody else is kept waiting
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return client, nil
}
