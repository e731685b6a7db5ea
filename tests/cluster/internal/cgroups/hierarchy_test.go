// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		mountinfo string
		want      []Hierarchy
	}{
		"version 2 only": {
			mountinfo: "24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
				"35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
			want: []Hierarchy{{Path: "/sys/fs/cgroup", Unified: true}},
		},
		"hybrid with two controllers in one tree": {
			mountinfo: "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
				"31 30 0:27 / /sys/fs/cgroup/cpu,cpuset rw,relatime - cgroup cgroup rw,cpuset,cpu\n" +
				"32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
				"33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
			want: []Hierarchy{
				{Path: "/sys/fs/cgroup/cpu,cpuset", Cpuset: true},
				{Path: "/sys/fs/cgroup/memory"},
				{Path: "/sys/fs/cgroup/unified", Unified: true},
			},
		},
		"mounted elsewhere, as by a container's tools": {
			mountinfo: "35 24 0:30 / /mnt/cgroup rw - cgroup2 cgroup2 rw\n",
		},
		"not mountinfo": {mountinfo: "nonsense\n\n - \n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, parse(row.mountinfo))
		})
	}
}

func TestCreateFillsInTheCpuset(t *testing.T) {
	t.Parallel()
	h := Hierarchy{Path: t.TempDir(), Cpuset: true}
	write(t, h.Path, "cpuset.cpus", "0-1\n")
	write(t, h.Path, "cpuset.mems", "0\n")
	require.NoError(t, h.create("ours", false))
	require.Equal(t, "0-1\n", read(t, h.Path, "ours", "cpuset.cpus"))
	require.Equal(t, "0\n", read(t, h.Path, "ours", "cpuset.mems"))
}

func TestEnableGivesOnlyWantedControllersThatAreMissing(t *testing.T) {
	t.Parallel()
	h := Hierarchy{Path: t.TempDir(), Unified: true}
	write(t, h.Path, "cgroup.controllers", "cpuset cpu io memory pids\n")
	write(t, h.Path, "cgroup.subtree_control", "cpuset cpu memory\n")
	require.NoError(t, h.enable(h.Path))
	// An ordinary file keeps the last write: the only controller that was missing.
	require.Equal(t, "+pids", read(t, h.Path, "cgroup.subtree_control"))
}

func TestRemoveTakesTheTreeAndToleratesItsAbsence(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kubepods", "burstable", "pod1"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kubepods", "pod2"), 0o755))
	require.NoError(t, remove(dir))
	require.NoDirExists(t, dir)
	require.NoError(t, remove(dir))
}

func TestSweepTakesTheDeadAndLeavesTheLiving(t *testing.T) {
	t.Parallel()
	hierarchies := []Hierarchy{{Path: t.TempDir()}, {Path: t.TempDir()}}
	living := &Root{name: Prefix + "living", hierarchies: hierarchies}
	for _, h := range hierarchies {
		for _, name := range []string{living.name, Prefix + "dead", "system.slice"} {
			require.NoError(t, os.MkdirAll(filepath.Join(h.Path, name, "child"), 0o755))
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Join(hierarchies[1].Path, Prefix+"half"), 0o755))
	require.NoError(t, living.hold())

	require.NoError(t, sweep(t.Context(), hierarchies))
	for _, h := range hierarchies {
		require.DirExists(t, filepath.Join(h.Path, living.name, "child"))
		require.DirExists(t, filepath.Join(h.Path, "system.slice"))
		require.NoDirExists(t, filepath.Join(h.Path, Prefix+"dead"))
		require.NoDirExists(t, filepath.Join(h.Path, Prefix+"half"))
	}
}

func TestOnlyTheLastOneIsToldSo(t *testing.T) {
	t.Parallel()
	hierarchies := []Hierarchy{{Path: t.TempDir()}}
	var roots []*Root
	for _, name := range []string{Prefix + "1", Prefix + "2"} {
		require.NoError(t, hierarchies[0].create(name, false))
		root := &Root{name: name, hierarchies: hierarchies}
		require.NoError(t, root.hold())
		roots = append(roots, root)
	}
	told := 0
	last := func() error { told++; return nil }
	require.NoError(t, roots[0].Remove(t.Context(), last))
	require.Zero(t, told, "the second lives")
	require.NoError(t, roots[1].Remove(t.Context(), last))
	require.Equal(t, 1, told)
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(content)
}
