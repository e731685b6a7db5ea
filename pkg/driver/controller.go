// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

// sliceController keeps the node's slices in the API server as they are wanted.
//
// It runs Kubernetes' own controller, and not through the kubelet plugin helper:
// the helper leaves a correction of what others did to our slices to the
// default, 30 seconds, in which a node has no cards after every restart of its
// kubelet. The helper also keeps errors back to the exponential limit of
// 1000 seconds, so that a node could stay unpublished long after an API server
// came back.
type sliceController struct {
	client   kubernetes.Interface
	nodeName string
	nodeUID  types.UID
	timing   Timing
	// synced is called after every comparison that brought the API server in
	// line; failed with every error. Neither may block.
	synced func()
	failed func(ctx context.Context, err error, msg string)

	mu      sync.Mutex
	wanted  *resourceslice.DriverResources // guarded by mu
	running *resourceslice.Controller      // guarded by mu
	started bool                           // guarded by mu
	wg      sync.WaitGroup
}

// update makes resources the wanted ones and compares them with the API server
// at once, also when nothing changed. It does not wait. ctx is that of the
// first call for as long as the controller runs.
func (s *sliceController) update(ctx context.Context, resources *resourceslice.DriverResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = resources
	switch {
	case s.running != nil:
		s.running.Update(resources)
	case !s.started:
		s.started = true
		s.wg.Go(func() { s.start(ctx) })
	}
}

// start waits until the API server was listed once; it may be away for long.
func (s *sliceController) start(ctx context.Context) {
	s.mu.Lock()
	first := s.wanted
	s.mu.Unlock()
	controller, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName:   Name,
		KubeClient:   s.client,
		Owner:        &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: s.nodeName, UID: s.nodeUID},
		Resources:    first,
		SyncDelay:    &s.timing.SyncDelay,
		Queue:        newQueue(s.timing, s.synced),
		ErrorHandler: s.failed,
	})
	if err != nil {
		if ctx.Err() == nil {
			s.failed(ctx, err, "start publishing")
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = controller
	if s.wanted != first {
		controller.Update(s.wanted)
	}
}

// stop ends the controller and waits for it. The context given to update must
// have ended before.
func (s *sliceController) stop() {
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.Stop()
}

// Corrections of what others did to our slices come at once, up to
// fastCorrections of them and one more every correctionRefill; the rest wait for
// the controller's own default. Two instances that want different slices, one of
// which never becomes ready, would otherwise write several times a second.
const (
	fastCorrections  = 60
	correctionRefill = 5 * time.Second
)

// queue is the controller's queue of pools, with three differences: an error
// keeps a pool back for RetryMost at most, it is told when a pool was done
// without an error, which the controller says to its queue only, and it slows
// down when corrections do not end.
type queue struct {
	workqueue.TypedRateLimitingInterface[string]
	done      func()
	syncDelay time.Duration
	fast      flowcontrol.PassiveRateLimiter
}

func newQueue(t Timing, done func()) queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](t.RetryFirst, t.RetryMost)
	return queue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(limiter), done: done, syncDelay: t.SyncDelay,
		fast: flowcontrol.NewTokenBucketPassiveRateLimiter(float32(time.Second)/float32(correctionRefill), fastCorrections),
	}
}

// AddAfter takes a pool whose slices were seen to change.
func (q queue) AddAfter(pool string, delay time.Duration) {
	if delay == q.syncDelay && !q.fast.TryAccept() {
		delay = resourceslice.DefaultSyncDelay
	}
	q.TypedRateLimitingInterface.AddAfter(pool, delay)
}

// Forget ends a series of failures: the pool is done.
func (q queue) Forget(pool string) {
	q.TypedRateLimitingInterface.Forget(pool)
	q.done()
}

var _ workqueue.TypedRateLimitingInterface[string] = queue{}

// logFailure is for errors that are tried again.
func logFailure(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, "Cannot publish cards, trying again", "what", msg)
}
