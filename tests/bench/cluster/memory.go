// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/tests/bench"
	"github.com/tranche-dra/tranche/tests/kube"
)

// memory measures the driver's resident memory with 8 cards and 128 shares.
func (c cluster) memory(ctx context.Context) ([]bench.Row, error) {
	for i := range pods {
		pod := kube.Sleeper(fmt.Sprint("holder-", i))
		kube.Use(pod, 0, "gpu", "eight")
		if _, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	if err := until(ctx, "all holders run", func() bool {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		running := 0
		for i := range list.Items {
			if kube.Condition(&list.Items[i], corev1.PodReady).Status == corev1.ConditionTrue {
				running++
			}
		}
		return err == nil && running == pods
	}); err != nil {
		return nil, err
	}
	resident, err := driverMemory(ctx)
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	for _, r := range []struct{ field, name string }{{"VmRSS", "at rest"}, {"VmHWM", "at most since its start"}} {
		rows = append(rows, bench.Row{
			Metric: fmt.Sprintf("resident memory of tranche-node, %d cards, %d shares, %s", cards, cards*pods, r.name),
			Value:  resident[r.field], Unit: "MiB", Target: bench.AtMost(40), Source: "target of this project",
		})
	}
	return rows, nil
}

// driverMemory reads the memory figures of the driver's process, in MiB. After
// an update the old process is there for a moment; it is not the one to measure.
func driverMemory(ctx context.Context) (map[string]float64, error) {
	var found []string
	if err := until(ctx, "the driver is one process", func() bool {
		found = driverProcesses()
		return len(found) == 1
	}); err != nil {
		return nil, fmt.Errorf("%w (there are %d)", err, len(found))
	}
	status, err := os.ReadFile(filepath.Join(found[0], "status"))
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for line := range strings.Lines(string(status)) {
		field, value, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err == nil {
			figures[field] = kib / 1024
		}
	}
	return figures, nil
}

// driverProcesses are the directories of /proc of the driver's processes.
func driverProcesses() []string {
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil
	}
	var found []string
	for _, comm := range comms {
		name, err := os.ReadFile(comm)
		if err == nil && strings.TrimSpace(string(name)) == "tranche-node" {
			found = append(found, filepath.Dir(comm))
		}
	}
	return found
}
