// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tranche-dra/tranche/tests/kube"
)

// patience is for one burst; it only ends runs that have failed.
const patience = 10 * time.Minute

// burstLabel tells the burst's pods from those that hold the shares.
var burstLabel = labels.Set{"burst": "yes"}

// round measures one scheduler with one burst and takes the burst away again.
func (c *cluster) round(ctx context.Context, s contender, pods int, seed uint64) (*result, error) {
	if err := c.makeBurst(ctx, s.profile, pods, seed); err != nil {
		return nil, err
	}
	got, err := c.measure(ctx, s, pods)
	if err != nil {
		return nil, err
	}
	holdings, err := kube.HoldingsNow(ctx, c)
	if err != nil {
		return nil, err
	}
	if over := holdings.OverCommitted(); len(over) > 0 {
		return nil, fmt.Errorf("it has given away more than there is: %s", strings.Join(over, "; "))
	}
	return got, c.clear(ctx, pods)
}

func burstName(i int) string { return fmt.Sprintf("burst-%05d", i) }

// makeBurst makes the pods while nobody schedules. The same seed makes the same burst.
func (c *cluster) makeBurst(ctx context.Context, profile string, pods int, seed uint64) error {
	random := rand.New(rand.NewPCG(3, seed))
	asks := make([]ask, pods)
	for i := range asks {
		asks[i] = someAsk(random)
	}
	return each(ctx, pods, func(ctx context.Context, i int) error {
		if _, err := c.ResourceV1().ResourceClaims(namespace).Create(ctx, claimOf(burstName(i), asks[i]), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create claim: %w", err)
		}
		pod := podOf(burstName(i))
		pod.Labels, pod.Spec.SchedulerName = burstLabel, profile
		if _, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
		return nil
	})
}

// measure starts the scheduler and watches it bind the burst.
func (c *cluster) measure(ctx context.Context, s contender, pods int) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watcher, err := c.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: burstLabel.String(), TimeoutSeconds: new(int64(patience.Seconds()))})
	if err != nil {
		return nil, fmt.Errorf("watch the burst: %w", err)
	}
	defer watcher.Stop()
	p, err := c.start(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	got := &result{}
	if err := got.follow(ctx, p, watcher, pods); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, p.log)
	}
	err = got.read(ctx, p)
	return got, err
}

// follow times the bindings from the first one to the last: what comes before
// is the start of a program.
func (r *result) follow(ctx context.Context, p *process, watcher watch.Interface, pods int) error {
	bound := map[types.UID]bool{}
	var first time.Time
	var busy time.Duration
	for len(bound) < pods {
		select {
		case event, open := <-watcher.ResultChan():
			pod, ok := event.Object.(*corev1.Pod)
			if !open || !ok {
				return fmt.Errorf("watch the burst: it ended with %d of %d pods bound: %v", len(bound), pods, event.Object)
			}
			if pod.Spec.NodeName == "" || bound[pod.UID] {
				continue
			}
			bound[pod.UID] = true
			if len(bound) == 1 {
				first = time.Now()
				var err error
				if busy, err = p.cpu(); err != nil {
					return err
				}
			}
		case <-p.ended:
			return fmt.Errorf("the scheduler ended with %d of %d pods bound", len(bound), pods)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods bound: %w", len(bound), pods, ctx.Err())
		}
	}
	now, err := p.cpu()
	r.took, r.pods, r.cpu = time.Since(first), pods-1, now-busy
	return err
}

// clear deletes the burst. Nobody else takes the finalizers off its claims.
func (c *cluster) clear(ctx context.Context, pods int) error {
	none := []byte(`{"metadata":{"finalizers":null}}`)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	return each(ctx, pods, func(ctx context.Context, i int) error {
		if err := c.CoreV1().Pods(namespace).Delete(ctx, burstName(i), now); err != nil {
			return fmt.Errorf("delete pod: %w", err)
		}
		claims := c.ResourceV1().ResourceClaims(namespace)
		if _, err := claims.Patch(ctx, burstName(i), types.MergePatchType, none, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("release claim: %w", err)
		}
		if err := claims.Delete(ctx, burstName(i), now); err != nil {
			return fmt.Errorf("delete claim: %w", err)
		}
		return nil
	})
}
