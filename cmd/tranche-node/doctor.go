// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/doctor"
)

// Exit codes of doctor.
const (
	exitProblem  = 1
	exitWrongUse = 2
)

// driverCommandLine is that of the process which a container was started for.
const driverCommandLine = "/proc/1/cmdline"

// doctorCommand is the sub-command doctor, which leaves its exit code behind.
type doctorCommand struct {
	getenv func(string) string
	// driver is the file with the command line of the driver beside it.
	driver   string
	endpoint string
	output   string
	exit     int
}

func newDoctorCommand(getenv func(string) string) *doctorCommand {
	return &doctorCommand{getenv: getenv, driver: driverCommandLine}
}

// command makes the sub-command. After it ran, d.exit is what the process ends with.
func (d *doctorCommand) command() *cobra.Command {
	o := newOptions(d.getenv)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps pods of this node from their cards, and say what to do",
		Long: "doctor checks the container runtime, kubelet, the API server, the cards and the driver's files, and prints one\n" +
			"line for each. It takes the driver's flags; in the driver's container, those that are not given are taken from\n" +
			"the driver itself. It exits with 0 if there is no problem, with 1 if there is one, and with 2 if used wrongly.",
		Example: "  # On any node:\n" +
			"  kubectl -n tranche-system exec ds/tranche-node -- /usr/bin/tranche-node doctor\n" +
			"  # On the node NODE, in its POD:\n" +
			"  kubectl -n tranche-system get pods -o wide --field-selector spec.nodeName=NODE\n" +
			"  kubectl -n tranche-system exec POD -- /usr/bin/tranche-node doctor",
		Args: func(cmd *cobra.Command, args []string) error {
			return d.wrongUse(cobra.NoArgs(cmd, args))
		},
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// What the parts would log is in the findings. Nor is the report a log,
			// so an error is printed here and not where the driver's are.
			if err := d.run(klog.NewContext(cmd.Context(), klog.Logger{}), o, cmd); err != nil {
				d.exit = max(d.exit, exitProblem)
				fmt.Fprintln(cmd.ErrOrStderr(), "Error:", err)
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return d.wrongUse(err) })
	o.addTo(cmd.Flags())
	cmd.Flags().StringVar(&d.endpoint, "runtime-endpoint", "", "`socket` of the container runtime, as kubelet knows it (default: the usual ones are tried)")
	cmd.Flags().StringVarP(&d.output, "output", "o", "table", "`form` of the report: table or json")
	return cmd
}

// wrongUse remembers the exit code where there is an error, and passes it on.
func (d *doctorCommand) wrongUse(err error) error {
	if err != nil {
		d.exit = exitWrongUse
	}
	return err
}

func (d *doctorCommand) run(ctx context.Context, o *options, cmd *cobra.Command) error {
	if d.output != "table" && d.output != "json" {
		return d.wrongUse(fmt.Errorf("choose output: %q is neither table nor json", d.output))
	}
	if err := likeDriver(d.driver, o); err != nil {
		return d.wrongUse(err)
	}
	config, err := o.config()
	if err != nil {
		return d.wrongUse(err)
	}
	checks, done, err := checksOf(o, config, d.endpoint)
	if err != nil {
		return d.wrongUse(err)
	}
	defer done()
	report := doctor.Report{Node: config.NodeName, Version: version, Findings: doctor.Examine(ctx, checks)}
	if report.Count(doctor.Problem) > 0 {
		d.exit = exitProblem
	}
	if d.output == "json" {
		return report.WriteJSON(cmd.OutOrStdout())
	}
	return report.WriteTable(cmd.OutOrStdout())
}

// likeDriver gives the options the values that the driver of this container was
// started with, where none were given. Elsewhere the first process is another
// program, and nothing happens.
func likeDriver(commandLine string, o *options) error {
	raw, err := os.ReadFile(commandLine)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the driver's command line: %w", err)
	}
	var args []string
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte{0}), []byte{0}) {
		args = append(args, string(arg))
	}
	if filepath.Base(args[0]) != "tranche-node" {
		return nil
	}
	flags := pflag.NewFlagSet("driver", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true // of logging
	newOptions(o.getenv).addTo(flags)
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("read the driver's command line: %w", err)
	}
	var failed error
	flags.Visit(func(f *pflag.Flag) {
		if !o.given.Changed(f.Name) {
			failed = errors.Join(failed, o.given.Set(f.Name, f.Value.String()))
		}
	})
	return failed
}
