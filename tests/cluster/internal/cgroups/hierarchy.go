// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Hierarchy is one mounted tree of cgroups.
type Hierarchy struct {
	// Path is where it is mounted.
	Path string
	// Unified is set for version 2.
	Unified bool
	// Cpuset is set for the version 1 tree with the cpuset controller.
	Cpuset bool
}

// wanted are the controllers that kubelet takes from a version 2 hierarchy. It
// expects below its root every one of them that the machine's root has
// (k8s.io/kubernetes/pkg/kubelet/cm/cgroup_v2_manager_linux.go).
var wanted = []string{"cpu", "cpuset", "hugetlb", "memory", "pids"}

// Hierarchies reads the mounted hierarchies from /proc/self/mountinfo.
func Hierarchies() ([]Hierarchy, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	found := parse(string(mountinfo))
	if len(found) == 0 {
		return nil, errors.New("find cgroups: none is mounted")
	}
	return found, nil
}

// parse picks the cgroup mounts below /sys/fs/cgroup out of mountinfo (proc(5)).
func parse(mountinfo string) []Hierarchy {
	var found []Hierarchy
	for line := range strings.Lines(mountinfo) {
		mount, source, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, kind := strings.Fields(mount), strings.Fields(source)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		h := Hierarchy{Path: fields[4]}
		if h.Path != "/sys/fs/cgroup" && !strings.HasPrefix(h.Path, "/sys/fs/cgroup/") {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			h.Unified = true
		case "cgroup":
			h.Cpuset = slices.Contains(strings.Split(kind[2], ","), "cpuset")
		default:
			continue
		}
		found = append(found, h)
	}
	return found
}

// create makes the cgroup name in h, ready for pods below it.
func (h Hierarchy) create(name string, only bool) error {
	dir := filepath.Join(h.Path, name)
	// In a hybrid set-up the controllers belong to version 1: the version 2
	// tree has none to hand down.
	if h.Unified && only {
		if err := h.enable(h.Path); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	if h.Cpuset {
		// A new version 1 cpuset is empty, and no process may enter an empty one.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.Path, file))
			if err != nil {
				return fmt.Errorf("read the machine's cpuset: %w", err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o600); err != nil {
				return fmt.Errorf("fill in cpuset: %w", err)
			}
		}
	}
	if h.Unified && only {
		return h.enable(dir)
	}
	return nil
}

// enable hands the wanted controllers that dir has, and does not hand down yet, to its children.
func (h Hierarchy) enable(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read cgroup controllers: %w", err)
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	given, err := os.ReadFile(control)
	if err != nil {
		return fmt.Errorf("read cgroup controllers: %w", err)
	}
	for _, controller := range wanted {
		if !slices.Contains(strings.Fields(string(has)), controller) || slices.Contains(strings.Fields(string(given)), controller) {
			continue
		}
		if err := os.WriteFile(control, []byte("+"+controller), 0o600); err != nil {
			if errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("enable cgroup controller %s in %s: %w (processes live in that cgroup itself; "+
					"in a container, move them to a child cgroup first)", controller, dir, err)
			}
			return fmt.Errorf("enable cgroup controller %s in %s: %w", controller, dir, err)
		}
	}
	return nil
}

// remove takes the tree at dir away, deepest first. A missing tree is no error.
func remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list cgroup: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	// Not os.Remove, which tries unlink first, nor RemoveAll: the files of a cgroup go with it.
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}
