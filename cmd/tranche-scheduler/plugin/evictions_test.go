// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/cmd/tranche-scheduler/plugin"
)

// eventually is until for where the test cannot be ended.
func eventually(done func() bool) {
	_ = wait.PollUntilContextTimeout(context.Background(), time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return done(), nil
	})
}

// A victim's claim is released while the pod is tried that it gave way to: after it was
// found that the pod does not fit, and around the moment at which it is looked who has
// what.
func TestNobodyElseGivesWayForWhatIsReleasedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(*watched) *atomic.Pointer[func()]{
		"before claims are listed": func(h *watched) *atomic.Pointer[func()] { return &h.beforeList },
		"after claims are listed":  func(h *watched) *atomic.Pointer[func()] { return &h.afterList },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h watched
			c := &crowd{world: newWorldWith(t, h.factory(), one("spread", "binpack"), machines(2, "node")...)}
			c.settle("victim", onCard(0, share("10", "30Gi")))
			c.settle("other", onCard(1, share("10", "30Gi")), withPriority(1))
			asks := forAllocator()
			asks.memory = "35Gi"
			c.come("urgent", asks, withPriority(urgent))
			c.gone("victim")
			c.nominated("urgent")
			release := func() {
				c.release("victim")
				eventually(func() bool {
					claim, err := h.SharedDRAManager().ResourceClaims().Get(namespace, "victim")
					return err == nil && claim.Status.Allocation == nil
				})
			}
			hook(&h).Store(&release)
			c.nudge()
			require.Equal(t, []string{"node/card-0"}, c.placed("urgent"))
			require.Nil(t, hook(&h).Load(), "it was released at that moment")
			c.there("other")
		})
	}
}

// gated counts how often a pod is held back.
type gated struct {
	*plugin.Plugin
	held *atomic.Int64
}

func (g gated) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	status := g.Plugin.PreEnqueue(ctx, pod)
	if status.IsRejected() {
		g.held.Add(1)
	}
	return status
}

// All victims end, and their claims are released, before the last of them is told: after
// that nothing happens any more that would have the pod tried.
func TestVictimsEndBeforeTheyAreTold(t *testing.T) {
	t.Parallel()
	var handle fwk.Handle
	var held atomic.Int64
	inner := plugin.NewFactory()
	c := &crowd{world: newWorldWith(t, func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		handle = h
		p, err := inner(ctx, args, h)
		if err != nil {
			return nil, err
		}
		return gated{p.(*plugin.Plugin), &held}, nil
	}, one("spread", "binpack"), machines(1, "node")...)}
	victims := []string{"first", "second"}
	for _, name := range victims {
		c.settle(name, share("10", "18Gi"))
	}
	pods, claims := corev1.SchemeGroupVersion.WithResource("pods"), resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	var done atomic.Bool
	c.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if done.Swap(true) {
			return false, nil, nil
		}
		for _, name := range victims {
			if err := c.client.Tracker().Delete(pods, namespace, name); err != nil {
				return true, nil, err
			}
		}
		eventually(func() bool {
			return !slices.ContainsFunc(victims, func(name string) bool {
				_, err := handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(namespace).Get(name)
				return !apierrors.IsNotFound(err)
			})
		})
		for i, name := range victims {
			found, err := c.client.Tracker().Get(claims, namespace, name)
			if err != nil {
				return true, nil, err
			}
			claim := found.(*resourceapi.ResourceClaim).DeepCopy()
			claim.Status = resourceapi.ResourceClaimStatus{}
			c.number(claim)
			if err := c.client.Tracker().Update(claims, claim, namespace); err != nil {
				return true, nil, err
			}
			eventually(func() bool { return held.Load() > int64(i) })
		}
		return false, nil, nil
	})
	c.settle("urgent", share("10", "38Gi"), withPriority(urgent))
	require.True(t, done.Load())
}
