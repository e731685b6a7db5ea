// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Reasons of events on claims, and on pods that wait for one.
const (
	reasonPrepareFailed   = "PrepareFailed"
	reasonUnprepareFailed = "UnprepareFailed"
)

// podsTold is how many of the pods that wait for a claim hear that it takes
// longer: one claim may be of hundreds.
const podsTold = 16

// plugin is the driver as kubelet's calls see it. The helper package wants one
// type with all of these methods, which are no business of Driver's users.
type plugin struct{ *Driver }

var _ kubeletplugin.DRAPlugin = plugin{}

// PrepareResourceClaims prepares the claims of one pod at the same time: their
// files are synced to disk, and most of that is waiting. Every claim gets an
// answer of its own.
func (p plugin) PrepareResourceClaims(ctx context.Context, list []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	return each(list, func(claim *resourceapi.ResourceClaim) (types.UID, kubeletplugin.PrepareResult) {
		start := time.Now()
		name := claims.Of(claim)
		var prepared []prepare.Prepared
		err := p.insist(ctx, func(ctx context.Context) (err error) {
			prepared, err = p.preparer.Prepare(ctx, claim)
			return err
		}, func(err error) { p.tellWaiting(claim, err) })
		p.recorder.PrepareDone(time.Since(start), err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot prepare claim", "claim", name, "uid", name.UID)
			p.events.Claim(name, reasonPrepareFailed, err.Error())
			return claim.UID, kubeletplugin.PrepareResult{Err: err}
		}
		klog.FromContext(ctx).V(2).Info("Prepared claim", "claim", name, "uid", name.UID, "shares", len(prepared), "took", time.Since(start))
		return claim.UID, kubeletplugin.PrepareResult{Devices: devices(prepared)}
	}), nil
}

// tellWaiting says why a claim is not prepared yet, on the claim and on the pods
// that it is reserved for. Of an error that ends the call kubelet tells the pod itself,
// with our words: telling it here would only repeat them.
func (p plugin) tellWaiting(claim *resourceapi.ResourceClaim, err error) {
	message := err.Error() + " (still trying)"
	p.events.Claim(claims.Of(claim), reasonPrepareFailed, message)
	told := 0
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" || told == podsTold {
			continue
		}
		told++
		p.events.Pod(types.NamespacedName{Namespace: claim.Namespace, Name: consumer.Name}, consumer.UID, reasonPrepareFailed, message)
	}
}

// UnprepareResourceClaims undoes what was prepared. Only names and UIDs are
// known; the claims may be gone.
func (p plugin) UnprepareResourceClaims(ctx context.Context, list []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	return each(list, func(object kubeletplugin.NamespacedObject) (types.UID, error) {
		start := time.Now()
		name := share.Claim{UID: string(object.UID), Namespace: object.Namespace, Name: object.Name}
		err := p.insist(ctx, func(ctx context.Context) error { return p.preparer.Unprepare(ctx, name) },
			func(err error) { p.events.Claim(name, reasonUnprepareFailed, err.Error()+" (still trying)") })
		p.recorder.UnprepareDone(time.Since(start), err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot unprepare claim", "claim", name, "uid", name.UID)
			p.events.Claim(name, reasonUnprepareFailed, err.Error())
			return object.UID, err
		}
		klog.FromContext(ctx).V(2).Info("Unprepared claim", "claim", name, "uid", name.UID, "took", time.Since(start))
		return object.UID, nil
	}), nil
}

// each does the same with all items at once and collects the answers by UID.
func each[T, R any](items []T, do func(T) (types.UID, R)) map[types.UID]R {
	var mu sync.Mutex
	var wg sync.WaitGroup
	results := make(map[types.UID]R, len(items))
	for _, item := range items {
		wg.Go(func() {
			uid, result := do(item)
			mu.Lock()
			defer mu.Unlock()
			results[uid] = result
		})
	}
	wg.Wait()
	return results
}

func devices(prepared []prepare.Prepared) []kubeletplugin.Device {
	out := make([]kubeletplugin.Device, 0, len(prepared))
	for _, s := range prepared {
		d := kubeletplugin.Device{
			Requests: []string{s.Request}, PoolName: s.Pool, DeviceName: s.Device, CDIDeviceIDs: []string{s.CDIDeviceID},
		}
		if s.ShareID != "" {
			id := types.UID(s.ShareID)
			d.ShareID = &id
		}
		out = append(out, d)
	}
	return out
}

// insist tries again while the error says that it may be gone in a moment. A
// call that fails is repeated by kubelet only after a minute or more, so the
// time that kubelet gives for one call is used up first, except for what it
// takes to answer. A fault that lasts is told once on the way, because the
// answer is late for somebody who looks at a pod that does not start.
func (p plugin) insist(ctx context.Context, do func(context.Context) error, tell func(error)) error {
	ctx, cancel := context.WithTimeout(ctx, p.budget(ctx))
	defer cancel()
	backoff := p.timing.backoff()
	start, told := time.Now(), false
	var cause error
	for attempt := 1; ; attempt++ {
		err := do(ctx)
		if cause != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = cause // a try that the deadline cut short knows nothing better
		}
		if err == nil || !prepare.IsTransient(err) {
			return err
		}
		cause = err
		if !told && time.Since(start) >= p.timing.Tell {
			tell(err)
			told = true
		}
		pause := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("%w (tried %d times)", err, attempt)
		case <-p.lastTry:
			pause.Stop()
			return fmt.Errorf("%w (tried %d times, the driver is stopping)", err, attempt)
		case <-pause.C:
			klog.FromContext(ctx).V(2).Info("Trying again after a fault that may be gone", "attempt", attempt, "err", err)
		}
	}
}

// budget is the time for which a call is tried. Of the caller's own deadline a
// ninth is left for the answer: 5 of kubelet's 45 seconds.
func (p plugin) budget(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return p.timing.PrepareBudget
	}
	return min(p.timing.PrepareBudget, time.Until(deadline)*8/9)
}
