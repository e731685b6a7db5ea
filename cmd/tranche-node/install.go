// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
)

// installLimit is how long installing may wait for somebody else who does the same.
const installLimit = time.Minute

// newInstallCommand makes the sub-command install-runtime.
func newInstallCommand() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "install-runtime",
		Short: "Copy the libraries that containers mount from the driver's image to the node",
		Long: "install-runtime copies the sharing runtime and the simulated driver to a directory that is named by a digest of\n" +
			"their content, and prints that directory. It never changes one that is there, so containers keep the version\n" +
			"that they started with. The DaemonSet runs it before the driver starts.",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), installLimit)
			defer cancel()
			if from == "" || !filepath.IsAbs(to) {
				return fmt.Errorf("install the sharing runtime: from %q to %q: want two directories, the second as an absolute path", from, to)
			}
			runtime, err := libraries.Install(ctx, from, to)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), runtime.Dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", v1alpha1.DefaultRuntimeSource, "`directory` with the libraries")
	cmd.Flags().StringVar(&to, "to", filepath.Join(v1alpha1.DefaultStateDir, "runtime"), "`directory` to install them in, as the driver's --runtime-dir")
	return cmd
}
