// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/arbiter"
	"github.com/tranche-dra/tranche/pkg/events"
	"github.com/tranche-dra/tranche/pkg/guarantee"
	"github.com/tranche-dra/tranche/pkg/hostdir"
	"github.com/tranche-dra/tranche/pkg/metrics"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	// rescan is how often all shares are looked at, whatever was noticed, and
	// whether the directories are the host's.
	rescan = 10 * time.Second
	// hostPIDNamespace is the number that the kernel gives the first PID
	// namespace: PROC_PID_INIT_INO.
	hostPIDNamespace = "pid:[4026531836]"
)

// run wires everything together and serves until ctx ends. The error is why the
// process cannot go on.
func run(ctx context.Context, c config) (err error) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version, "node", c.nodeName, "state", c.stateDir, "run", c.runDir, "watchdog", c.watchdog.Action)
	if namespace, err := os.Readlink("/proc/self/ns/pid"); err == nil && namespace != hostPIDNamespace {
		logger.Info("Not in the host's PID namespace: processes of real cards, and of containers outside of this namespace, cannot be served", "namespace", namespace)
	}
	told, closeEvents, err := newEvents(ctx, c)
	if err != nil {
		return err
	}
	defer closeEvents()
	simulated := newSimulatedCards(c.cardsDir)
	defer func() { err = errors.Join(err, simulated.close()) }()
	cards := newCards(c)
	defer cards.Close()
	recorder := &lateRecorder{}
	a := arbiter.New(arbiter.Config{
		Version:   version,
		SharesDir: filepath.Join(c.stateDir, "shares"), RunDir: filepath.Join(c.runDir, "arbiter"),
		ContextEstimate: c.contextEstimate, Rescan: rescan, Watchdog: c.watchdog,
	}, arbiter.Dependencies{Cards: cards, SimulatedCards: simulated, Events: told, Recorder: recorder})
	recorder.Arbiter = metrics.NewArbiter(build(), arbiter.Kinds(), a)
	recorder.ShowCompute(a)
	statuses, err := newStatuses(c, a)
	if err != nil {
		return err
	}
	return serve(ctx, c, a, recorder.Arbiter, statuses)
}

// lateRecorder is for an arbiter that the metrics ask, and that counts with them.
type lateRecorder struct{ *metrics.Arbiter }

// serve runs everything that runs; the first that fails ends the others.
func serve(ctx context.Context, c config, a *arbiter.Arbiter, recorder *metrics.Arbiter, statuses func(context.Context)) error {
	listener, err := listen(ctx, c.metricsAddress)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveHTTP(ctx, listener, handler(a, recorder.Handler())) })
	group.Go(func() error { return watchOf(c).Run(ctx) })
	group.Go(func() error { serveDebug(ctx, c.debugSocket, a); return nil })
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error { statuses(ctx); return nil })
	return group.Wait()
}

// watchOf ends the process when a directory that it shares with tranche-node is
// not the host's any more: the next one gets today's.
func watchOf(c config) hostdir.Watch {
	host := hostdir.Host{}
	if c.driverRoot == "/" { // else only the driver's directory is mounted
		host.Root = c.driverRootMount
	}
	return hostdir.Watch{Host: host, Interval: rescan, Dirs: []string{c.stateDir, c.runDir}}
}

// newEvents are those of the API server, or none.
func newEvents(ctx context.Context, c config) (arbiter.Events, func(), error) {
	if !c.kubernetes {
		return unwritten{}, func() {}, nil
	}
	config, err := restConfig(c.kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "tranche-arbiter/" + version
	cluster, err := events.NewCluster(ctx, config, "tranche-arbiter", c.nodeName)
	if err != nil {
		return nil, nil, err
	}
	return cluster, cluster.Close, nil
}

// newStatuses keeps what shares got in the status of their claims, where there is an
// API server.
func newStatuses(c config, source guarantee.Source) (run func(context.Context), err error) {
	if !c.kubernetes {
		return func(context.Context) {}, nil
	}
	config, err := restConfig(c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "tranche-arbiter/" + version
	writer, err := guarantee.NewCluster(config)
	if err != nil {
		return nil, err
	}
	// The name from here, as package slices would bring all of Kubernetes' kinds along.
	return guarantee.New(guarantee.Config{Driver: v1alpha1.DriverName}, source, writer).Run, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("%w (outside of a cluster, --kubeconfig or --kubernetes=false is needed)", err)
	}
	return config, nil
}

// unwritten events are in the log, as all are.
type unwritten struct{}

// Claim implements arbiter.Events.
func (unwritten) Claim(share.Claim, string, string) {}

// Node implements arbiter.Events.
func (unwritten) Node(string, string) {}

// build says what was linked.
func build() metrics.Build {
	b := metrics.Build{Version: version, GoVersion: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	return b
}
