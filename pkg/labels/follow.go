// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// pageSize objects are decoded at once at most.
	pageSize = 250
	// watchSeconds is the shortest time after which the API server ends a watch, and
	// the longest is twice that, so that not all nodes begin anew together.
	watchSeconds = 300
	// retryFirst and retryMost are the shortest and the longest pause before
	// another try.
	retryFirst, retryMost = 200 * time.Millisecond, 30 * time.Second
	// tick is how often the handler may try again what it could not do.
	tick = 2 * time.Second
)

// Objects are those of one kind in the API server, by their metadata.
type Objects interface {
	List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// handler is told what is there. Its methods are called one after the other.
type handler interface {
	// listing begins a list of all objects, listed ends it.
	listing()
	listed(ctx context.Context)
	// is tells of an object as it is, listed or changed.
	is(ctx context.Context, object *metav1.PartialObjectMetadata)
	// gone tells of one that was deleted, or is selected no more.
	gone(ctx context.Context, object *metav1.PartialObjectMetadata)
	// failed tells of an error; it is tried again.
	failed(ctx context.Context, err error)
	// again is called now and then.
	again(ctx context.Context)
}

// follower lists the objects that are selected, and then is told of changes.
type follower struct {
	objects Objects
	// selected by labels or fields.
	selected metav1.ListOptions
	handler  handler
}

// run follows until ctx ends. Where the API server has forgotten the version from
// which changes are wanted, everything is listed anew.
func (f follower) run(ctx context.Context) {
	backoff := func() *wait.Backoff {
		return &wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.5, Steps: 64, Cap: retryMost}
	}
	version, retry := "", backoff()
	for ctx.Err() == nil {
		started := time.Now()
		var err error
		if version == "" {
			version, err = f.list(ctx)
		}
		if err == nil {
			version, err = f.watch(ctx, version)
		}
		if forgotten(err) {
			version = ""
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !forgotten(err) {
			f.handler.failed(ctx, err)
		}
		if time.Since(started) > retryMost {
			retry = backoff()
		}
		sleep(ctx, retry.Step())
	}
}

func forgotten(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// list tells of all objects, and returns the version that they have together.
func (f follower) list(ctx context.Context) (version string, err error) {
	f.handler.listing()
	options := f.selected
	options.Limit = pageSize
	for {
		page, err := f.objects.List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			f.handler.is(ctx, &page.Items[i])
		}
		if page.Continue == "" {
			f.handler.listed(ctx)
			return page.ResourceVersion, nil
		}
		options.Continue = page.Continue
	}
}

// watch tells of changes since a version until the API server ends it, and returns
// the version up to which all were told.
func (f follower) watch(ctx context.Context, version string) (string, error) {
	options := f.selected
	options.ResourceVersion, options.AllowWatchBookmarks = version, true
	seconds := watchSeconds + rand.Int64N(watchSeconds) //nolint:gosec // to spread, not to hide
	options.TimeoutSeconds = &seconds
	changes, err := f.objects.Watch(ctx, options)
	if err != nil {
		return version, err
	}
	defer changes.Stop()
	again := time.NewTicker(tick)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return version, nil
		case <-again.C:
			f.handler.again(ctx)
		case event, more := <-changes.ResultChan():
			if !more {
				return version, nil
			}
			if event.Type == watch.Error {
				return version, apierrors.FromObject(event.Object)
			}
			version = f.happened(ctx, event, version)
		}
	}
}

// happened tells of one change, and returns the version that it brought about.
func (f follower) happened(ctx context.Context, event watch.Event, version string) string {
	object, ok := event.Object.(*metav1.PartialObjectMetadata)
	if !ok {
		return version
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		f.handler.is(ctx, object)
	case watch.Deleted:
		f.handler.gone(ctx, object)
	default: // a bookmark
	}
	return object.ResourceVersion
}

// sleep waits for a time or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
