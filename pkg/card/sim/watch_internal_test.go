// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// A directory above may be a busy one: its events are not wanted for longer than
// needed.
func TestOnlyTheNearestDirectoryIsWatched(t *testing.T) {
	t.Parallel()
	watcher, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watcher.Close()) })
	above := t.TempDir()
	dir := filepath.Join(above, "a", "b")
	for _, step := range []struct{ make, nearest string }{
		{above, above},
		{filepath.Join(above, "a"), filepath.Join(above, "a")},
		{dir, dir},
		{dir, dir},
	} {
		require.NoError(t, os.MkdirAll(step.make, 0o750))
		follow(klog.FromContext(t.Context()), watcher, dir)
		require.Equal(t, []string{step.nearest}, watcher.WatchList())
	}
	follow(klog.FromContext(t.Context()), nil, dir) // without a watcher there is only polling
}
