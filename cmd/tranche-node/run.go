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
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/hostdir"
	"github.com/tranche-dra/tranche/pkg/labels"
	"github.com/tranche-dra/tranche/pkg/metrics"
	"github.com/tranche-dra/tranche/pkg/podresources"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/probe"
	"github.com/tranche-dra/tranche/pkg/reconcile"
)

// nodeUIDInterval is how often the node's UID is compared with the token's.
const nodeUIDInterval = 5 * time.Second

// openLimit is how long the start waits for somebody who installs a runtime.
const openLimit = 10 * time.Second

// bootIDFile holds an ID that the kernel makes at every boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// stores are the node's files.
type stores struct {
	records *checkpoint.Store
	locks   *checkpoint.Locks
	specs   cdi.Specs
	dirs    cdi.Dirs
}

// run wires everything together and serves until ctx ends. The error is why the
// process cannot go on.
func run(ctx context.Context, o *options, config *v1alpha1.NodeConfig, c clients) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version, "node", config.NodeName, "cards", config.CardSource, "state", config.StateDir)
	bootID, err := os.ReadFile(bootIDFile)
	if err != nil {
		return fmt.Errorf("read the kernel's boot ID: %w", err)
	}
	cards, err := newHardware(config)
	if err != nil {
		return err
	}
	defer cards.close()
	inventory := driver.NewInventory(cards)
	s, err := openStores(config)
	if err != nil {
		return err
	}
	events := driver.NewClusterEvents(ctx, c.kubernetes, config.NodeName, c.nodeUID)
	defer events.Close()
	recorder := metrics.New(build(), *config.SlotsPerCard, heldShares{s.records})
	installed := openLibraries(ctx, config)
	defer installed.Close() //nolint:errcheck // opened for reading
	policy := labels.NewDefaultPolicy(c.nodes, config.NodeName, labels.Configured{Policy: config.DefaultPolicy, By: o.defaultPolicyBy}, events)
	preparer := prepare.New(prepare.Config{
		Node:  claims.Node{Driver: driver.Name, Pool: config.NodeName, DefaultPolicy: policy.Policy, Card: inventory.Card},
		Slots: *config.SlotsPerCard, BootID: strings.TrimSpace(string(bootID)),
		Records: s.records, Locks: s.locks, Specs: s.specs, Dirs: s.dirs, Driver: cards.files,
		Report: reports{events, recorder}, Libraries: installed, Arbiter: probe.Arbiter{Patience: config.ArbiterTimeout.Duration},
	})
	kubelet := podresources.New(podresources.SocketIn(config.KubeletRoot))
	node, err := driver.New(driver.Config{
		NodeName: config.NodeName, NodeUID: c.nodeUID, PodUID: types.UID(o.podUID), KubeletRoot: config.KubeletRoot,
		Slots: *config.SlotsPerCard, ForceSharing: config.ForceOldKubernetes,
	}, driver.Dependencies{
		Client: c.kubernetes, Watcher: cards, Inventory: inventory, Preparer: preparer,
		Plugins: kubelet, Events: events, Recorder: recorder,
	})
	if err != nil {
		return err
	}
	healer := reconcile.New(reconcile.Config{
		Preparer: preparer, Records: s.records, Specs: s.specs, Dirs: s.dirs, Libraries: installed,
		Claims: claimReader{c.kubernetes}, Pods: kubelet, Recorder: recorder, CDIRoot: config.CDIRoot,
		Interval: config.ReconcileInterval.Duration, StaleGrace: config.StaleGrace.Duration, Now: time.Now,
	})
	// Before anything is healed: what a record says is checked against the cards.
	if _, err := inventory.Refresh(ctx); err != nil {
		logger.Error(err, "Cannot list cards yet")
	}
	return serve(ctx, config, node, recorder,
		healer.Run,
		watchOf(config).Run,
		func(ctx context.Context) error { return watchNode(ctx, c, nodeUIDInterval) },
		func(ctx context.Context) error { policy.Run(ctx); return nil },
		func(ctx context.Context) error {
			labels.NewCeilings(c.claims, s.records, preparer).Run(ctx)
			return nil
		},
		func(ctx context.Context) error { settleMemory(ctx); return nil })
}

// openLibraries finds this driver's own version of the sharing runtime. It is
// installed where it is missing: the init container that does it runs once a pod,
// and the state directory may be another one by now. Where that fails the driver
// runs, and prepares nothing until somebody has seen to it.
func openLibraries(ctx context.Context, config *v1alpha1.NodeConfig) *libraries.Store {
	logger := klog.FromContext(ctx)
	limited, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	installed := libraries.NewStore(config.RuntimeDir, config.RuntimeSource)
	_, err := installed.Install(limited)
	digest, errCurrent := installed.Current()
	if err := errors.Join(err, errCurrent); err != nil {
		logger.Error(err, "No claim can be prepared yet")
		return installed
	}
	logger.Info("Found the sharing runtime", "digest", digest, "dir", config.RuntimeDir)
	return installed
}

// serve runs the driver, its servers and all others that run; the first that fails
// ends the rest.
func serve(ctx context.Context, config *v1alpha1.NodeConfig, node *driver.Driver, recorder *metrics.Node, others ...func(context.Context) error) error {
	http, err := listen(ctx, "metrics", *config.MetricsAddress)
	if err != nil {
		return err
	}
	health, err := listen(ctx, "health", *config.HealthAddress)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveHTTP(ctx, http, handler(node, recorder.Handler())) })
	group.Go(func() error { return serveHealth(ctx, health, node) })
	group.Go(func() error { return node.Run(ctx) })
	for _, run := range others {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// hostOf is how the process sees the host: where the graphics driver is
// installed below another directory than the root, only that one is mounted.
func hostOf(config *v1alpha1.NodeConfig) hostdir.Host {
	if config.DriverRoot != "/" {
		return hostdir.Host{}
	}
	return hostdir.Host{Root: config.DriverRootMount}
}

// watchOf ends the process when a directory that it shares with kubelet or with
// the container runtime is not theirs any more: the next one gets today's.
func watchOf(config *v1alpha1.NodeConfig) hostdir.Watch {
	return hostdir.Watch{
		Host: hostOf(config), Interval: config.ReconcileInterval.Duration,
		Dirs: []string{
			config.StateDir, config.RunDir, config.CDIRoot, filepath.Join(config.KubeletRoot, "plugins"), filepath.Join(config.KubeletRoot, "plugins_registry"),
			filepath.Dir(podresources.SocketIn(config.KubeletRoot)),
		},
	}
}

func openStores(config *v1alpha1.NodeConfig) (stores, error) {
	files := durable.Files{}
	// Where a directory exists its mode is not ours: others use the CDI
	// directory too, and an administrator may have closed that of the state.
	if _, err := os.Stat(config.StateDir); err != nil {
		if err := files.MkdirAll(config.StateDir, 0o755); err != nil {
			return stores{}, err
		}
	}
	if err := os.MkdirAll(config.CDIRoot, 0o755); err != nil { //nolint:gosec // container runtimes read it under any user
		return stores{}, err
	}
	records, err := checkpoint.NewStore(filepath.Join(config.StateDir, "claims"), files)
	if err != nil {
		return stores{}, err
	}
	return stores{
		records: records,
		locks:   checkpoint.NewLocks(filepath.Join(config.StateDir, "lock")),
		specs:   cdi.NewSpecs(config.CDIRoot, files),
		dirs:    cdi.NewDirs(filepath.Join(config.StateDir, "shares"), files),
	}, nil
}

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
