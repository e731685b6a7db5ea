// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
	return shares.below(mounts), nil
}

// below names the shares whose directories are among the mounts.
func (m mount) below(mounts []mount) []share.Key {
	var keys []share.Key
	for _, other := range mounts {
		key, below := strings.CutPrefix(other.root, m.root+"/")
		if below && other.device == m.device && !strings.Contains(key, "/") {
			keys = append(keys, share.Key(key))
		}
	}
	return keys
}

// podInCgroup is a pod's UID in the name of a control group, as either of
// kubelet's drivers writes it.
var podInCgroup = regexp.MustCompile(`pod([0-9a-f]{8}([-_])[0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)

// podOf is the UID of the pod that a process is in, empty where it is in none.
// It is for people only: a process may be able to move itself.
func podOf(pid int) string {
	raw, err := os.ReadFile(procPath(pid, "cgroup"))
	if err != nil {
		return ""
	}
	return podIn(string(raw))
}

func podIn(cgroups string) string {
	found := podInCgroup.FindStringSubmatch(cgroups)
	if found == nil {
		return ""
	}
	return strings.ReplaceAll(found[1], "_", "-")
}
