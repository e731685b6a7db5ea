// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"io/fs"
	"syscall"
)

func inodeOf(info fs.FileInfo) (int64, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("stat %s: no inode number", info.Name())
	}
	return int64(stat.Ino), nil //nolint:gosec // only compared for equality
}
