// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/tests/cluster/internal/cluster"
	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
	"github.com/tranche-dra/tranche/tests/cluster/internal/isolate"
	"github.com/tranche-dra/tranche/tests/cluster/internal/node"
)

const (
	initCommand = "inside-init"
	nodeCommand = "inside-node"
)

// interruptedError is why a run ends after a signal.
type interruptedError struct{ signal os.Signal }

func (e interruptedError) Error() string { return fmt.Sprintf("interrupted by signal: %s", e.signal) }

// status is what a shell makes of it.
func (e interruptedError) status() int {
	if s, ok := e.signal.(unix.Signal); ok {
		return 128 + int(s)
	}
	return cluster.ExitBroken
}

func build(args []string) (int, error) {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	sources := sourcesFlag(flags)
	printDir := flags.Bool("print", false, "print the directory with the programs on standard output")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	ctx, stop := interruptible()
	defer stop()
	builder, err := newBuilder(*sources, narrator(time.Now()))
	if err != nil {
		return 0, err
	}
	set, err := builder.Ensure(ctx)
	if err != nil {
		return 0, err
	}
	if *printDir {
		fmt.Println(set.Dir)
	}
	return 0, set.Release()
}

func run(args []string) (int, error) {
	options, sources, err := runOptions(args)
	if err != nil {
		return 2, err
	}
	say := narrator(time.Now())
	ctx, stop := interruptible()
	defer stop()
	builder, err := newBuilder(sources, say)
	if err != nil {
		return 0, err
	}
	return cluster.Run(ctx, builder, options, say)
}

// runOptions reads the command line of run; it also returns the sources.
func runOptions(args []string) (cluster.Options, string, error) {
	o := cluster.Options{InitArgs: []string{initCommand}}
	var images, manifests, extra list
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: tranche-cluster run [flags] -- CMD...")
		flags.PrintDefaults()
	}
	sources := sourcesFlag(flags)
	flags.StringVar(&o.Work, "work", "", "work directory, for logs and data; a temporary one where empty")
	flags.Var(&images, "image", "image archive to import before the node is Ready; may be repeated")
	flags.BoolVar(&o.Keep, "keep", false, "after CMD, open a shell in the cluster; it goes when the shell does")
	flags.StringVar(&o.Settings.FeatureGates, "feature-gates", "", "feature gates of the Kubernetes components: Name=true,Other=false")
	flags.StringVar(&o.Settings.CDIDir, "cdi-dir", "/var/run/cdi", "where containerd looks for CDI specs")
	flags.StringVar(&o.Settings.Scheduler, "scheduler", "", "program to run in place of kube-scheduler; it must know the same flags")
	schedulerConfig := flags.String("scheduler-config", "", "KubeSchedulerConfiguration for the scheduler; reaching the API server and leader election are set for it")
	flags.Var(&manifests, "apply", "manifest to apply before the scheduler starts; may be repeated")
	flags.StringVar(&o.Settings.SchedulerAccount, "scheduler-account", "", "service account `NAMESPACE/NAME` of an --apply, as which the scheduler runs; it has the rights of system:kube-scheduler otherwise")
	flags.BoolVar(&o.Settings.FakeNodes, "fake-nodes", false, "run kwok, which keeps nodes with the annotation "+config.FakeNodeAnnotation+" Ready, and pods there running")
	flags.IntVar(&o.Settings.Verbosity, "v", 2, "verbosity of kubelet's log")
	flags.Var(&extra, "arg", "further argument of a component, as in kube-apiserver=--audit-log-path=/tmp/audit; may be repeated")
	flags.DurationVar(&o.Timeout, "timeout", time.Hour, "how long CMD may take; 0 is for ever")
	flags.DurationVar(&o.ReadyTimeout, "ready-timeout", 2*time.Minute, "how long the node may take to be Ready")
	if err := flags.Parse(args); err != nil {
		return o, "", err
	}
	o.Command = flags.Args()
	if o.Keep && !node.Terminal(os.Stdin) {
		fmt.Fprintln(os.Stderr, "tranche-cluster: --keep is left out: standard input is no terminal")
		o.Keep = false
	}
	if len(o.Command) == 0 && !o.Keep {
		return o, "", errors.New("run nothing: give a command after --, or --keep for a shell")
	}
	var err error
	if o.Images, err = absolute("image", images); err != nil {
		return o, "", err
	}
	if o.Manifests, err = absolute("manifest", manifests); err != nil {
		return o, "", err
	}
	if err := scheduler(&o.Settings, *schedulerConfig); err != nil {
		return o, "", err
	}
	if o.Settings.ExtraArgs, err = extraArgs(extra); err != nil {
		return o, "", err
	}
	if o.Dir, err = os.Getwd(); err != nil {
		return o, "", fmt.Errorf("find current directory: %w", err)
	}
	if o.Tool, err = os.Executable(); err != nil {
		return o, "", fmt.Errorf("find own program: %w", err)
	}
	return o, *sources, nil
}

// scheduler checks that the program is there, that its account can be one and its
// configuration is one, before anything is started.
func scheduler(s *config.Settings, file string) error {
	if s.Scheduler != "" {
		path, err := exec.LookPath(s.Scheduler)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return fmt.Errorf("find scheduler: %w", err)
		}
		s.Scheduler = path
	}
	if namespace, name, ok := strings.Cut(s.SchedulerAccount, "/"); s.SchedulerAccount != "" && (!ok || namespace == "" || name == "") {
		return fmt.Errorf("parse --scheduler-account %s: not NAMESPACE/NAME", s.SchedulerAccount)
	}
	if file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the scheduler's configuration: %w", err)
		}
		s.SchedulerConfig = string(content)
	}
	_, err := config.Files(*s)
	return err
}

// absolute checks that the files are there, before anything is started.
func absolute(kind string, files []string) ([]string, error) {
	paths := make([]string, 0, len(files))
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", kind, err)
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("find %s: %w", kind, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// extraArgs sorts COMPONENT=ARGUMENT pairs by component.
func extraArgs(pairs []string) (map[string][]string, error) {
	args := map[string][]string{}
	for _, pair := range pairs {
		component, argument, ok := strings.Cut(pair, "=")
		if !ok || !slices.Contains(config.Components(), component) {
			return nil, fmt.Errorf("parse --arg %s: not COMPONENT=ARGUMENT with one of %s", pair, strings.Join(config.Components(), ", "))
		}
		args[component] = append(args[component], argument)
	}
	return args, nil
}

// runInit is the first process of the namespaces.
func runInit(args []string) (int, error) {
	return isolate.Init(append([]string{nodeCommand}, args...)...)
}

// runNode makes the node and runs the command.
func runNode(args []string) (int, error) {
	if len(args) != 1 {
		return 2, errors.New("this command is for tranche-cluster itself")
	}
	spec, err := node.Load(args[0])
	if err != nil {
		return 0, err
	}
	ctx, stop := interruptible()
	defer stop()
	code, err := node.Run(ctx, spec, narrator(spec.Begin))
	if interrupted := (interruptedError{}); errors.As(err, &interrupted) {
		return interrupted.status(), err
	}
	return code, err
}

// interruptible returns a context that a signal ends with an interruptedError.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		select {
		case s := <-signals:
			cancel(interruptedError{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
