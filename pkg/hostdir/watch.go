// SPDX-License-Identifier: Apache-2.0

package hostdir

import (
	"context"
	"os"
	"time"

	"k8s.io/klog/v2"
)

// Watch looks after directories.
type Watch struct {
	Host Host
	Dirs []string
	// Interval between two looks.
	Interval time.Duration
}

// Run returns nil when ctx ends, and an error that wraps ErrStale as soon as a
// directory is found stale. One that was stale at the start is left alone:
// starting again has not helped then, and would not help the next time. So is
// one that was missing: this process makes it itself, and nobody mounted it.
func (w Watch) Run(ctx context.Context) error {
	var sound []string
	for _, dir := range w.Dirs {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := w.Host.Check(dir); err != nil {
			klog.FromContext(ctx).Error(err, "Started with a directory that is not the host's; containers may not start", "path", dir)
			continue
		}
		sound = append(sound, dir)
	}
	ticker := time.NewTicker(w.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, dir := range sound {
			if err := w.Host.Check(dir); err != nil {
				return err
			}
		}
	}
}
