// SPDX-License-Identifier: Apache-2.0

package hostdir

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrStale says that the directory which this process has is not the one that
// the host has there.
var ErrStale = errors.New("restart this process to use the directory of today")

// Host is how a process sees the host's files.
type Host struct {
	// Root is where the host's root directory is mounted. Empty, or "/", for a
	// process that has no such mount: it sees no more than deletions.
	Root string
}

// Check compares a directory, by device and inode, with that of the host at the
// same path. The error wraps ErrStale. What cannot be compared passes: a
// directory that is missing here is for others to report.
func (h Host) Check(dir string) error {
	var here unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		return nil //nolint:nilerr // nothing to compare
	}
	if here.Nlink == 0 { // a mount keeps a deleted directory alive
		return fmt.Errorf("check directory %s: it was deleted on the host: %w", dir, ErrStale)
	}
	if h.Root == "" || filepath.Clean(h.Root) == "/" {
		return nil
	}
	there, err := h.stat(dir)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("check directory %s: the host has none there, it was moved or deleted: %w", dir, ErrStale)
	case err != nil:
		return nil //nolint:nilerr // the host's directory cannot be seen
	case there.Dev != here.Dev || there.Ino != here.Ino:
		return fmt.Errorf("check directory %s: the host has another one there, which was made or mounted since: %w", dir, ErrStale)
	}
	return nil
}

// errNoRoot keeps a missing mount of the host apart from a missing directory.
var errNoRoot = errors.New("host's root is not mounted")

// stat looks a path up as the host would: links, such as that of /var/run, lead
// to places below the host's root.
func (h Host) stat(dir string) (unix.Stat_t, error) {
	var info unix.Stat_t
	root, err := unix.Open(h.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return info, fmt.Errorf("%w: %v", errNoRoot, err) //nolint:errorlint // ENOENT means another thing here
	}
	defer unix.Close(root) //nolint:errcheck // nothing was written
	fd, err := unix.Openat2(root, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return info, err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	err = unix.Fstat(fd, &info)
	return info, err
}
