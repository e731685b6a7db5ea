// SPDX-License-Identifier: Apache-2.0

package hostdir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/hostdir"
)

// node is a host's root, and a directory that a process has of it. A link
// stands for the mount: the process reaches the host's directory by its path.
func node(t *testing.T) (host hostdir.Host, here, there string) {
	t.Helper()
	root := t.TempDir()
	here = filepath.Join(t.TempDir(), "state")
	there = filepath.Join(root, here)
	require.NoError(t, os.MkdirAll(there, 0o750))
	require.NoError(t, os.Symlink(there, here))
	return hostdir.Host{Root: root}, here, there
}

// hold makes the path lead to a directory that is there now, wherever it goes.
func hold(t *testing.T, here, there string) {
	t.Helper()
	held, err := os.Open(there)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	require.NoError(t, os.Remove(here))
	require.NoError(t, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", held.Fd()), here))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(t *testing.T, host *hostdir.Host, here, there string)
		says    string
	}{
		"the host's own": {func(*testing.T, *hostdir.Host, string, string) {}, ""},
		"the host's own, behind an absolute link": {
			func(t *testing.T, host *hostdir.Host, here, there string) {
				// As /var/run is /run: the link is of the host, not of here.
				require.NoError(t, os.MkdirAll(filepath.Join(host.Root, "real"), 0o750))
				require.NoError(t, os.Rename(there, filepath.Join(host.Root, "real/state")))
				require.NoError(t, os.Symlink("/real/state", there))
				require.NoError(t, os.Remove(here))
				require.NoError(t, os.Symlink(filepath.Join(host.Root, "real/state"), here))
			}, "",
		},
		"another directory was made or mounted there": {
			func(t *testing.T, _ *hostdir.Host, _, there string) {
				require.NoError(t, os.Rename(there, there+".old"))
				require.NoError(t, os.Mkdir(there, 0o750))
			}, "the host has another one there",
		},
		"it was moved away": {
			func(t *testing.T, _ *hostdir.Host, _, there string) {
				require.NoError(t, os.Rename(there, there+".old"))
			},
			"the host has none there",
		},
		"a file is there instead": {
			func(t *testing.T, _ *hostdir.Host, _, there string) {
				require.NoError(t, os.Rename(there, there+".old"))
				require.NoError(t, os.WriteFile(there, nil, 0o600))
			}, "the host has none there",
		},
		"it was deleted, and the host is not seen": {
			func(t *testing.T, host *hostdir.Host, _, there string) {
				host.Root = ""
				require.NoError(t, os.Remove(there))
			}, "it was deleted on the host",
		},
		"it is missing here": {
			func(t *testing.T, _ *hostdir.Host, here, _ string) { require.NoError(t, os.Remove(here)) }, "",
		},
		"the host's root is not mounted": {
			func(_ *testing.T, host *hostdir.Host, _, _ string) { host.Root += "/none" }, "",
		},
		"this process is one of the host": {
			func(t *testing.T, host *hostdir.Host, _, there string) {
				host.Root = "//"
				require.NoError(t, os.Rename(there, there+".old"))
			}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, here, there := node(t)
			hold(t, here, there)
			require.NoError(t, host.Check(here), "sound before")
			tc.happens(t, &host, here, there)
			err := host.Check(here)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, hostdir.ErrStale)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestAWatchEndsWhenADirectoryGoesStale(t *testing.T) {
	t.Parallel()
	host, here, there := node(t)
	hold(t, here, there)
	_, otherHere, otherThere := node(t)
	hold(t, otherHere, otherThere)
	require.NoError(t, os.RemoveAll(otherThere))
	require.Error(t, host.Check(otherHere))
	late := filepath.Join(t.TempDir(), "late")
	synctest.Test(t, func(t *testing.T) {
		watch := hostdir.Watch{Host: host, Dirs: []string{otherHere, late, here}, Interval: time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- watch.Run(ctx) }()
		synctest.Wait()
		require.NoError(t, os.Mkdir(late, 0o750))
		require.Error(t, host.Check(late))
		<-time.After(time.Minute)
		require.Empty(t, done, "those that were stale or missing at the start do not count")
		cancel()
		require.NoError(t, <-done)

		go func() { done <- watch.Run(t.Context()) }()
		synctest.Wait()
		require.NoError(t, os.Rename(there, there+".old"))
		require.NoError(t, os.Mkdir(there, 0o750))
		require.ErrorIs(t, <-done, hostdir.ErrStale)
	})
}
