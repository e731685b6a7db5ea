// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/tests/bench"
)

// publish measures what publishing costs with a real API server: how long the
// driver takes to notice that its slices are gone and to write them, how long
// the write alone takes, and how much is written.
func (c cluster) publish(ctx context.Context) ([]bench.Row, error) {
	var gaps []time.Duration
	for range 5 {
		gap, err := c.gap(ctx, "the slices are deleted", func() error {
			return c.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, ours())
		})
		if err != nil {
			return nil, err
		}
		gaps = append(gaps, gap)
	}
	if err := c.published(ctx); err != nil {
		return nil, err
	}
	list, err := c.ResourceV1().ResourceSlices().List(ctx, ours())
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(list.Items)
	if err != nil {
		return nil, err
	}
	var writes []time.Duration
	for range rounds {
		took, err := c.write(ctx, list.Items)
		if err != nil {
			return nil, err
		}
		writes = append(writes, took)
	}
	return []bench.Row{
		{
			Metric: "slices deleted by somebody: back after, longest of 5", Value: bench.Milliseconds(slices.Max(gaps)), Unit: "ms",
			Source: "no figure of others is known",
		},
		{
			Metric: fmt.Sprintf("publish: write the slices of %d cards to the API server, p50", cards), Value: bench.Milliseconds(bench.Percentile(writes, 50)), Unit: "ms",
			Source: "this run, as the administrator",
		},
		{
			Metric: fmt.Sprintf("publish: size of the slices of %d cards as stored", cards), Value: float64(len(data)) / 1024, Unit: "KiB",
			Source: "JSON with metadata; the API server takes 1.5 MiB an object",
		},
	}, nil
}

// write creates copies of the slices for a node that does not exist, which no
// driver minds, and deletes them again. Only creating is measured.
func (c cluster) write(ctx context.Context, published []resourceapi.ResourceSlice) (time.Duration, error) {
	const node = "nobody"
	api := c.ResourceV1().ResourceSlices()
	var took time.Duration
	for i := range published {
		spec := published[i].Spec.DeepCopy()
		spec.NodeName, spec.Pool.Name = new(node), node
		one := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(node, "-", i)}, Spec: *spec}
		begin := time.Now()
		_, err := api.Create(ctx, one, metav1.CreateOptions{})
		took += time.Since(begin)
		if err != nil {
			return 0, fmt.Errorf("write a slice: %w", err)
		}
		if err := api.Delete(ctx, one.Name, metav1.DeleteOptions{}); err != nil {
			return 0, fmt.Errorf("delete a slice: %w", err)
		}
	}
	return took, nil
}
