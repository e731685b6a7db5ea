// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/listing"
)

// Watch calls notify once when it has begun to watch, so that nothing is missed
// between an earlier listing and now, and then whenever a listing would differ.
// Directories are watched, not the file: it may be replaced by a rename, be a
// link of a mounted ConfigMap, or not be there yet. Where the kernel gives no
// events, reading the file at intervals is left.
func (s *Source) Watch(ctx context.Context, notify func(card.Event)) error {
	logger := klog.FromContext(ctx).WithName("cards").WithValues("fleet", s.opts.Path)
	var events <-chan fsnotify.Event
	var failures <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Cannot watch the fleet file, reading it at intervals", "interval", s.opts.PollInterval)
	} else {
		defer func() { _ = watcher.Close() }()
		events, failures = watcher.Events, watcher.Errors
	}
	ticker := time.NewTicker(s.opts.PollInterval)
	defer ticker.Stop()

	follow(logger, watcher, filepath.Dir(s.opts.Path))
	last := listing.Take(ctx, s)
	notify(card.Event{Reason: listing.Watching})
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			logger.V(4).Info("Something changed near the fleet file", "event", event.String())
		case err := <-failures:
			logger.Error(err, "Watching the fleet file")
		case <-ticker.C:
		}
		follow(logger, watcher, filepath.Dir(s.opts.Path))
		now := listing.Take(ctx, s)
		if ctx.Err() != nil {
			return nil
		}
		for _, event := range now.Since(last) {
			logger.V(2).Info("Simulated cards changed", "reason", event.Reason, "card", event.Card)
			notify(event)
		}
		last = now
	}
}

// follow watches the directory, or the nearest one above it that exists. To
// watch a directory twice is to watch it once. It goes on until it ends at the
// same directory twice: one that was made meanwhile would be missed otherwise.
func follow(logger klog.Logger, watcher *fsnotify.Watcher, dir string) {
	if watcher == nil {
		return
	}
	for before := ""; ; {
		nearest, err := watchNearest(watcher, dir)
		if err != nil {
			logger.V(2).Info("Cannot watch the fleet file, reading it at intervals", "err", err)
			return
		}
		if nearest == dir || nearest == before {
			return
		}
		before = nearest
	}
}

func watchNearest(watcher *fsnotify.Watcher, dir string) (string, error) {
	for {
		err := watcher.Add(dir)
		if err == nil {
			forgetOthers(watcher, dir)
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("watch %s: %w", dir, err)
		}
		dir = parent
	}
}

// forgetOthers ends the watches of directories above: they may be busy ones.
func forgetOthers(watcher *fsnotify.Watcher, dir string) {
	for _, other := range watcher.WatchList() {
		if other != dir {
			_ = watcher.Remove(other) // it is gone already where this fails
		}
	}
}
