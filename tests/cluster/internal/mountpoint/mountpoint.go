// SPDX-License-Identifier: Apache-2.0

package mountpoint

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mark is on directories that Make made. Only root can set or see it.
const mark = "trusted.tranche.mountpoint"

// Make makes a directory, unless it is there, and marks it.
func Make(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create mount point: %w", err)
	}
	// A file system without such attributes keeps an empty directory: no reason to fail.
	if err := unix.Setxattr(dir, mark, []byte("1"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("mark mount point: %w", err)
	}
	return nil
}

// Clear removes the marked ones among the directories that are empty.
func Clear(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if _, err := unix.Getxattr(dir, mark, nil); err != nil {
			continue // not ours, or not there
		}
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			errs = append(errs, fmt.Errorf("remove mount point %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
