// SPDX-License-Identifier: Apache-2.0

// Command cluster measures the driver on a real Kubernetes node: what a share
// adds to the start of a pod, how much memory the driver takes, and how long
// its slices are away when kubelet restarts. It runs inside the cluster of
// tests/cluster ("make bench").
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/kube"
)

const (
	namespace = "bench"
	cards     = 8
	// 16 pods with a share of each of 8 cards are 128 shares.
	pods   = 16
	rounds = 20
	// patience is the deadline of every wait.
	patience = 3 * time.Minute
	fleet    = `apiVersion: tranche.dev/v1alpha1
kind: Fleet
cards:
- model: A30
  count: 8
`
)

func main() {
	out := flag.String("out", "build/bench", "directory of the report")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	err := run(ctx, *out)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench cluster:", err)
		os.Exit(1)
	}
}

// ours selects the driver's slices.
func ours() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + kube.Driver}
}

// cluster is what the measurements need.
type cluster struct {
	kubernetes.Interface
}

func run(ctx context.Context, out string) error {
	client, err := kube.Connect()
	if err != nil {
		return err
	}
	c := cluster{client}
	if err := c.install(ctx); err != nil {
		return err
	}
	var rows []bench.Row
	for _, measure := range []func(context.Context) ([]bench.Row, error){c.starts, c.memory, c.away, c.publish} {
		more, err := measure(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	return bench.Report(os.Stdout, "cluster", out, rows)
}

// install brings up the driver with eight simulated cards.
func (c cluster) install(ctx context.Context) error {
	if err := kube.Install(ctx); err != nil {
		return err
	}
	file := filepath.Join(os.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte(fleet), 0o600); err != nil {
		return err
	}
	defer os.Remove(file) //nolint:errcheck // scratch
	patch, err := kube.Kubectl(ctx, "-n", kube.System, "create", "configmap", "tranche-fleet", "--from-file=fleet.yaml="+file, "--dry-run=client", "-o", "json")
	if err != nil {
		return err
	}
	if _, err := kube.Kubectl(ctx, "-n", kube.System, "patch", "configmap", "tranche-fleet", "--type=merge", "-p", patch); err != nil {
		return err
	}
	// The running driver would see the new fleet within a minute; a new one does at once.
	if _, err := kube.Kubectl(ctx, "-n", kube.System, "rollout", "restart", "daemonset/"+kube.DaemonSet); err != nil {
		return err
	}
	if err := kube.WaitForDriver(ctx); err != nil {
		return err
	}
	if err := c.published(ctx); err != nil {
		return err
	}
	if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "the namespace has its service account", func() bool {
		_, err := c.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	}); err != nil {
		return err
	}
	for name, request := range map[string]resourceapi.DeviceRequest{
		"one":   kube.Request("gpu", "share.tranche.dev", 1, kube.Share("10", "1Gi")),
		"eight": kube.Request("gpu", "share.tranche.dev", cards, kube.Share("5", "1Gi")),
	} {
		if _, err := c.ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, kube.Template(name, request), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (c cluster) published(ctx context.Context) error {
	return until(ctx, "all cards are published", func() bool {
		list, err := c.ResourceV1().ResourceSlices().List(ctx, ours())
		devices := 0
		for _, s := range list.Items {
			devices += len(s.Spec.Devices)
		}
		return err == nil && devices == cards
	})
}

// starts measures from creating a pod to its container running, one pod after
// the other, with and without a share in turns.
func (c cluster) starts(ctx context.Context) ([]bench.Row, error) {
	times := map[bool][]time.Duration{}
	for round := range rounds + 1 {
		for _, shared := range []bool{false, true} {
			pod := kube.Sleeper(fmt.Sprintf("start-%d-%t", round, shared))
			if shared {
				kube.Use(pod, 0, "gpu", "one")
			}
			took, err := c.start(ctx, pod)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first of each kind warms caches up
				times[shared] = append(times[shared], took)
			}
		}
	}
	without, with := bench.Percentile(times[false], 50), bench.Percentile(times[true], 50)
	return []bench.Row{
		{Metric: "pod created to container running, without a share, p50", Value: bench.Milliseconds(without), Unit: "ms", Source: "this run"},
		{
			Metric: "pod created to container running, with a share, p50", Value: bench.Milliseconds(with), Unit: "ms",
			Reference: fmt.Sprintf("%.2f times the pod without", float64(with)/float64(without)), Source: "this run",
		},
		{Metric: "pod created to container running, with a share, p90", Value: bench.Milliseconds(bench.Percentile(times[true], 90)), Unit: "ms", Source: "this run"},
	}, nil
}

// start creates a pod, waits until its container runs, and deletes it.
func (c cluster) start(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	watcher, err := c.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name).String()})
	if err != nil {
		return 0, err
	}
	defer watcher.Stop()
	begin := time.Now()
	if _, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	if err := next(ctx, watcher, "pod "+pod.Name+" runs", func(e watch.Event) bool {
		seen, ok := e.Object.(*corev1.Pod)
		return ok && len(seen.Status.ContainerStatuses) == 1 && seen.Status.ContainerStatuses[0].State.Running != nil
	}); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if err := c.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	return took, next(ctx, watcher, "pod "+pod.Name+" is gone", func(e watch.Event) bool { return e.Type == watch.Deleted })
}

// away measures for how long no slice is published when kubelet restarts.
func (c cluster) away(ctx context.Context) ([]bench.Row, error) {
	var gaps []time.Duration
	for range 5 {
		gap, err := c.gap(ctx, "kubelet deletes the slices", func() error { return kube.Control(ctx, "kill", "kubelet") })
		if err != nil {
			return nil, err
		}
		gaps = append(gaps, gap)
	}
	return []bench.Row{{
		Metric: "slices away when kubelet restarts, longest of 5", Value: bench.Milliseconds(slices.Max(gaps)), Unit: "ms", Target: bench.AtMost(1000),
		Reference: "30 s without publishing on registration", Source: "reference: resync delay of the kubeletplugin helper 0.37",
	}}, nil
}

// gap does something that has the slices deleted, and measures from their going
// to their being there again.
func (c cluster) gap(ctx context.Context, what string, do func() error) (time.Duration, error) {
	if err := c.published(ctx); err != nil {
		return 0, err
	}
	watcher, err := c.ResourceV1().ResourceSlices().Watch(ctx, ours())
	if err != nil {
		return 0, err
	}
	defer watcher.Stop()
	if err := do(); err != nil {
		return 0, err
	}
	if err := next(ctx, watcher, what, func(e watch.Event) bool { return e.Type == watch.Deleted }); err != nil {
		return 0, err
	}
	begin := time.Now()
	err = next(ctx, watcher, "the slices are published again", func(e watch.Event) bool { return e.Type == watch.Added })
	return time.Since(begin), err
}

// next waits for an event.
func next(ctx context.Context, watcher watch.Interface, what string, is func(watch.Event) bool) error {
	deadline := time.After(patience)
	for {
		select {
		case event, open := <-watcher.ResultChan():
			if !open {
				return fmt.Errorf("wait until %s: the watch ended", what)
			}
			if is(event) {
				return nil
			}
		case <-deadline:
			return fmt.Errorf("wait until %s: not within %v", what, patience)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// until waits for a state.
func until(ctx context.Context, what string, is func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("wait until %s: not within %v", what, patience)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
	return nil
}
