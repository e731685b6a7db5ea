// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tranche-dra/tranche/pkg/share"
)

// mount is one line of /proc/PID/mountinfo: what is mounted where. Paths are as
// the kernel writes them, with some characters escaped.
type mount struct {
	device, root, point string
}

// mountsOf lists the mounts that a process sees. The text is the kernel's, and
// reading it touches no file of the process.
func mountsOf(pid string) ([]mount, error) {
	raw, err := os.ReadFile("/proc/" + pid + "/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var mounts []mount
	for line := range strings.Lines(string(raw)) {
		// "id parent major:minor root mount-point ..."
		if fields := strings.Fields(line); len(fields) > 5 {
			mounts = append(mounts, mount{device: fields[2], root: fields[3], point: fields[4]})
		}
	}
	return mounts, nil
}

// sharesMount is where the directories of shares are on their file system, with
// which a container's mounts are compared.
func sharesMount(dir string) (mount, error) {
	mounts, err := mountsOf("self")
	if err != nil {
		return mount{}, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return mount{}, fmt.Errorf("find directory of shares: %w", err)
	}
	var found mount
	for _, m := range mounts { // a later one covers those before
		if m.point == "/" || real == m.point || strings.HasPrefix(real, m.point+"/") {
			if len(m.point) >= len(found.point) {
				found = m
			}
		}
	}
	found.root = path.Join(found.root, strings.TrimPrefix(real, found.point))
	return found, nil
}

// sharesOf tells which shares a process has in its mounts: the proof that it is
// in a container which was given them. A process of the host, which sees the
// directories where they are, has none.
func sharesOf(pid int, shares mount) ([]share.Key, error) {
	mounts, err := mountsOf(fmt.Sprint(pid))
	if err != nil {
		return nil, err
	}
	var keys []share.Key
	for _, m := range mounts {
		key, below := strings.CutPrefix(m.root, shares.root+"/")
		if below && m.device == shares.device && !strings.Contains(key, "/") {
			keys = append(keys, share.Key(key))
		}
	}
	return keys, nil
}
