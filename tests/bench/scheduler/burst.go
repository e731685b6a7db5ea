// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tranche-dra/tranche/tests/kube"
)

// patience is for one burst; it only ends runs that have failed.
const patience = 10 * time.Minute

// set is pods that are made and taken away together, by their label.
type set string

const (
	burst   set = "burst"
	steady  set = "steady"
	misfits set = "misfit"
)

func (s set) name(i int) string  { return fmt.Sprintf("%s-%05d", s, i) }
func (s set) labels() labels.Set { return labels.Set{"set": string(s)} }
func (s set) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: s.labels().String(), TimeoutSeconds: new(int64(patience.Seconds()))}
}

// round measures one scheduler with one burst and takes the burst away again.
func (c *cluster) round(ctx context.Context, s contender, o options, seed uint64) (*result, error) {
	random := rand.New(rand.NewPCG(3, seed))
	if err := c.make(ctx, burst, s.profile, someClaims(random, burst, o.burst)); err != nil {
		return nil, err
	}
	got, err := c.measure(ctx, s, o, someClaims(random, steady, o.steady))
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
	return got, errors.Join(c.clear(ctx, burst, o.burst), c.clear(ctx, steady, o.steady), c.clear(ctx, misfits, o.misfits))
}

func someClaims(random *rand.Rand, of set, pods int) []*resourceapi.ResourceClaim {
	claims := make([]*resourceapi.ResourceClaim, pods)
	for i := range claims {
		claims[i] = claimOf(of.name(i), someAsk(random))
	}
	return claims
}

// make makes a pod for each claim, which is its own.
func (c *cluster) make(ctx context.Context, of set, profile string, claims []*resourceapi.ResourceClaim) error {
	return each(ctx, len(claims), func(ctx context.Context, i int) error {
		if _, err := c.ResourceV1().ResourceClaims(namespace).Create(ctx, claims[i], metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create claim: %w", err)
		}
		pod := podOf(claims[i].Name)
		pod.Labels, pod.Spec.SchedulerName = of.labels(), profile
		if _, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
		return nil
	})
}

// measure starts the scheduler, watches it bind the burst, then has it serve pods
// that come one after the other, and then asks for what cannot be had.
func (c *cluster) measure(ctx context.Context, s contender, o options, oneByOne []*resourceapi.ResourceClaim) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watcher, err := c.CoreV1().Pods(namespace).Watch(ctx, burst.options())
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
	if err := got.follow(ctx, p, watcher, o.burst); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, p.log)
	}
	if err := got.read(ctx, p); err != nil {
		return nil, err
	}
	if err := c.arrive(ctx, s.profile, o.rate, oneByOne); err != nil {
		return nil, err
	}
	if err := got.readSteady(ctx, p, o.steady); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, p.log)
	}
	if err := c.refuse(ctx, s.profile, o); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, p.log)
	}
	err = got.readRefused(ctx, p, o.misfits)
	return got, err
}

// arrive makes pods at a rate.
func (c *cluster) arrive(ctx context.Context, profile string, rate float64, claims []*resourceapi.ResourceClaim) error {
	every := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer every.Stop()
	for _, claim := range claims {
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.make(ctx, steady, profile, []*resourceapi.ResourceClaim{claim}); err != nil {
			return err
		}
	}
	return nil
}

// refuse makes pods that fit nowhere and waits until each has been told so.
func (c *cluster) refuse(ctx context.Context, profile string, o options) error {
	claims := make([]*resourceapi.ResourceClaim, o.misfits)
	for i := range claims {
		claims[i] = claimFor(misfits.name(i), kube.Request("gpu", "card.tranche.dev", int64(o.cards), nil))
	}
	if err := c.make(ctx, misfits, profile, claims); err != nil {
		return err
	}
	return until(ctx, patience, "all misfits are refused", func(ctx context.Context) error {
		pods, err := c.CoreV1().Pods(namespace).List(ctx, misfits.options())
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if kube.Condition(&pods.Items[i], corev1.PodScheduled).Status != corev1.ConditionFalse {
				return fmt.Errorf("pod %s is not", pods.Items[i].Name)
			}
		}
		return nil
	})
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
				return fmt.Errorf("watch the burst: the API server ended it with %d of %d pods bound, as it does where this machine is too busy to follow: %v", len(bound), pods, event.Object)
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

// clear deletes a set. Nobody else takes the finalizers off its claims.
func (c *cluster) clear(ctx context.Context, of set, pods int) error {
	none := []byte(`{"metadata":{"finalizers":null}}`)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	return each(ctx, pods, func(ctx context.Context, i int) error {
		if err := c.CoreV1().Pods(namespace).Delete(ctx, of.name(i), now); err != nil {
			return fmt.Errorf("delete pod: %w", err)
		}
		claims := c.ResourceV1().ResourceClaims(namespace)
		if _, err := claims.Patch(ctx, of.name(i), types.MergePatchType, none, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("release claim: %w", err)
		}
		if err := claims.Delete(ctx, of.name(i), now); err != nil {
			return fmt.Errorf("delete claim: %w", err)
		}
		return nil
	})
}
