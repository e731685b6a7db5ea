// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
)

// tree is what lies below root: mode and content of each path.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		found[p[len(root):]] = info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			found[p[len(root):]] += " " + string(data)
			return err
		}
		return nil
	}))
	return found
}

// crash is what a Step panics with in the place of the end of the process.
type crash struct{ step int }

// crashAt ends the caller at the n-th step; without one it counts the steps.
func crashAt(n int, count *int) durable.Files {
	return durable.Files{Step: func(string, string) {
		*count++
		if *count == n {
			panic(crash{n})
		}
	}}
}

// survive runs f up to its crash.
func survive(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if c, ok := p.(crash); ok {
				err = fmt.Errorf("crashed at step %d", c.step)
				return
			}
			panic(p)
		}
	}()
	return f()
}

func TestACrashAtEachStepIsMendedByARetry(t *testing.T) {
	t.Parallel()
	key := shareOf(uidA, "gpu", "1", cardA).Key()
	nothing := func(string) error { return nil }
	writeSpec := func(root string, files durable.Files, content string) error {
		_, err := NewSpecs(filepath.Join(root, "cdi"), files).Write(uidA, []byte(content))
		return err
	}
	writeDir := func(root string, files durable.Files, content string) error {
		_, err := NewDirs(filepath.Join(root, "shares"), files).Write(key, []byte(content))
		return err
	}
	for _, row := range []struct {
		name   string
		before func(root string) error
		do     func(root string, files durable.Files) error
	}{
		{"a first spec in a directory that is missing", nothing, func(r string, f durable.Files) error { return writeSpec(r, f, "new") }},
		{"a spec in the place of another", func(r string) error { return writeSpec(r, durable.Files{}, "old") }, func(r string, f durable.Files) error { return writeSpec(r, f, "new") }},
		{"a spec removed", func(r string) error { return writeSpec(r, durable.Files{}, "old") }, func(r string, f durable.Files) error {
			return NewSpecs(filepath.Join(r, "cdi"), f).Remove(uidA)
		}},
		{"a first share directory", nothing, func(r string, f durable.Files) error { return writeDir(r, f, "new") }},
		{"a share.json in the place of another", func(r string) error { return writeDir(r, durable.Files{}, "old") }, func(r string, f durable.Files) error { return writeDir(r, f, "new") }},
		{"a share directory removed with what the arbiter left in it", func(r string) error {
			return errors.Join(writeDir(r, durable.Files{}, "old"),
				os.WriteFile(filepath.Join(r, "shares", string(key), "arbiter.sock"), nil, 0o600))
		}, func(r string, f durable.Files) error { return NewDirs(filepath.Join(r, "shares"), f).Remove(key) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			whole := t.TempDir()
			require.NoError(t, row.before(whole))
			var steps int
			require.NoError(t, row.do(whole, crashAt(0, &steps)))
			want := tree(t, whole)
			require.Positive(t, steps)

			for n := 1; n <= steps; n++ {
				root := t.TempDir()
				require.NoError(t, row.before(root))
				var count int
				require.EqualError(t, survive(func() error { return row.do(root, crashAt(n, &count)) }), fmt.Sprintf("crashed at step %d", n))
				require.NoError(t, row.do(root, durable.Files{}))
				require.Equal(t, want, tree(t, root), "crash at step %d of %d", n, steps)
			}
		})
	}
}

func TestWhatACrashedWriteLeftIsFoundAndRemoved(t *testing.T) {
	t.Parallel()
	key := shareOf(uidA, "gpu", "1", cardA).Key()
	var steps int
	probe := t.TempDir()
	_, err := NewSpecs(probe, crashAt(0, &steps)).Write(uidA, []byte("{}"))
	require.NoError(t, err)
	for n := 1; n <= steps; n++ {
		dir := t.TempDir()
		var count int
		require.Error(t, survive(func() error { _, err := NewSpecs(dir, crashAt(n, &count)).Write(uidA, []byte("{}")); return err }))
		left := len(tree(t, dir)) > 1
		store := NewSpecs(dir, durable.Files{})
		uids, err := store.List()
		require.NoError(t, err)
		require.Equal(t, left, len(uids) == 1, "crash at step %d", n)
		require.NoError(t, store.Remove(uidA))
		require.Len(t, tree(t, dir), 1, "only the directory itself")
	}

	steps = 0
	_, err = NewDirs(t.TempDir(), crashAt(0, &steps)).Write(key, []byte("{}"))
	require.NoError(t, err)
	for n := 1; n <= steps; n++ {
		dir := t.TempDir()
		var count int
		require.Error(t, survive(func() error { _, err := NewDirs(dir, crashAt(n, &count)).Write(key, []byte("{}")); return err }))
		left := len(tree(t, dir)) > 1
		store := NewDirs(dir, durable.Files{})
		keys, err := store.List()
		require.NoError(t, err)
		require.Equal(t, left, len(keys) == 1, "crash at step %d", n)
		require.NoError(t, store.Remove(key))
		require.Len(t, tree(t, dir), 1, "only the directory itself")
	}
}

func TestSpecsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o750))
	store := NewSpecs(dir, durable.Files{})
	for _, row := range []struct {
		content string
		changed bool
	}{{"one", true}, {"one", false}, {"two", true}} {
		changed, err := store.Write(uidA, []byte(row.content))
		require.NoError(t, err)
		require.Equal(t, row.changed, changed)
		require.Equal(t, map[string]string{
			"": "drwxr-x---",
			"/gpu.tranche.dev-share_" + uidA + ".json": "-rw-r--r-- " + row.content,
		}, tree(t, dir), "the mode of a directory that others use stays")
	}
}

func TestListPassesOverFilesOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"nvidia.yaml", "management.nvidia.com-gpu.yaml", "k8s.gpu.nvidia.com-claim_" + uidA + ".yaml",
		"gpu.tranche.dev-share.json", "gpu.tranche.dev-share_.json", "gpu.tranche.dev-share_" + uidA, "gpu.tranche.dev-share_" + uidA + ".yaml",
		"gpu.tranche.dev-share_a b.json", ".gpu.tranche.dev-share_" + uidA + ".json", "spec.123.tmp", ".nvidia.yaml.tmp",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "gpu.tranche.dev-share_"+uidA+".json"), 0o700))
	store := NewSpecs(dir, durable.Files{})
	uids, err := store.List()
	require.NoError(t, err)
	require.Empty(t, uids)

	for _, uid := range []string{uidA + "1", uidB} {
		_, err := store.Write(uid, []byte("{}"))
		require.NoError(t, err)
	}
	for _, uid := range []string{uidB, uidA} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".gpu.tranche.dev-share_"+uid+".json.tmp"), nil, 0o600))
	}
	uids, err = store.List()
	require.NoError(t, err)
	require.Equal(t, []string{uidB, uidA, uidA + "1"}, uids, "with what a crash left, each once, sorted")

	before := len(tree(t, dir))
	require.NoError(t, store.Remove(uidB))
	require.NoError(t, store.Remove(uidB), "again")
	require.Len(t, tree(t, dir), before-2, "the spec and the left-over")
}

func TestAWipedDirectoryIsFilledAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run", "cdi")
	store := NewSpecs(dir, durable.Files{})
	require.ErrorIs(t, store.Check(), fs.ErrNotExist)
	uids, err := store.List()
	require.NoError(t, err)
	require.Empty(t, uids)
	require.NoError(t, store.Remove(uidA))

	for range 2 {
		changed, err := store.Write(uidA, []byte("{}"))
		require.NoError(t, err)
		require.True(t, changed)
		require.NoError(t, store.Check())
		require.NoError(t, os.RemoveAll(dir))
	}
}

// A process in a container holds the directory by a mount. Here an open file
// does the same: the path through it leads to the directory that was deleted.
func TestADeletedDirectoryThatIsHeldOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held := filepath.Join(dir, "cdi")
	require.NoError(t, os.Mkdir(held, 0o700))
	file, err := os.Open(held)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	store := NewSpecs(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), durable.Files{})
	require.NoError(t, store.Check())
	_, err = store.Write(uidB, []byte("{}"))
	require.NoError(t, err)

	require.NoError(t, os.RemoveAll(held))
	require.ErrorIs(t, store.Check(), ErrDirectoryGone)
	_, err = store.Write(uidA, []byte("{}"))
	require.ErrorIs(t, err, ErrDirectoryGone)
	require.ErrorContains(t, err, uidA)
}

func TestCheckRefusesWhatCannotHoldSpecs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cdi")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, NewSpecs(file, durable.Files{}).Check(), "not a directory")

	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	check := func(mode os.FileMode) error {
		require.NoError(t, os.Chmod(dir, mode))
		return asNobody(func() error { return NewSpecs(dir, durable.Files{}).Check() })
	}
	require.NoError(t, check(0o777))
	require.ErrorIs(t, check(0o555), unix.EACCES)
	require.NoError(t, os.Chmod(dir, 0o755))
}

// asNobody calls f on a thread whose real user may write less than root, which
// access(2) goes by. The thread ends with its goroutine, since it stays locked.
func asNobody(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if os.Getuid() == 0 {
			const nobody = 65534
			if _, _, errno := unix.RawSyscall(unix.SYS_SETREUID, nobody, ^uintptr(0), 0); errno != 0 {
				done <- errno
				return
			}
		}
		done <- f()
	}()
	return <-done
}

func TestAShareDirectoryKeepsItsInode(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "shares")
	key := shareOf(uidA, "gpu", "1", cardA).Key()
	store := NewDirs(root, durable.Files{})
	changed, err := store.Write(key, []byte("one"))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, map[string]string{
		"": "drwxr-xr-x", "/" + string(key): "drwxr-xr-x", "/" + string(key) + "/share.json": "-r--r--r-- one",
	}, tree(t, root))

	inode := func() uint64 {
		info, err := os.Stat(store.Path(key))
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	before := inode()
	socket := filepath.Join(store.Path(key), "arbiter.sock")
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	open, err := os.Open(filepath.Join(store.Path(key), ShareFileName))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, open.Close()) })

	changed, err = store.Write(key, []byte("one"))
	require.NoError(t, err)
	require.False(t, changed)
	changed, err = store.Write(key, []byte("two"))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, before, inode())
	require.FileExists(t, socket)
	old := make([]byte, 3)
	_, err = open.Read(old)
	require.NoError(t, err)
	require.Equal(t, "one", string(old), "who has the file open keeps the old content whole")
}

func TestRemoveTellsTheArbiterFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	key := shareOf(uidA, "gpu", "1", cardA).Key()
	var removed []string
	store := NewDirs(root, durable.Files{Step: func(op, path string) {
		if op == "remove" || op == "rmdir" {
			removed = append(removed, filepath.Base(path))
		}
	}})
	_, err := store.Write(key, []byte("{}"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(store.Path(key), "arbiter.sock"), nil, 0o600))
	require.NoError(t, store.Remove(key))
	require.Equal(t, []string{ShareFileName, "arbiter.sock", string(key)}, removed)
	require.NoError(t, store.Remove(key), "again")
	require.Len(t, tree(t, root), 1)
}

func TestListPassesOverWhatIsNoShare(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	store := NewDirs(root, durable.Files{})
	for _, name := range []string{"lost+found", uidA, "-0123456789", uidA + "-0123456789abc", uidA + "-012345678X"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, uidA+"-0123456789"), nil, 0o600))
	keys, err := store.List()
	require.NoError(t, err)
	require.Empty(t, keys)

	a, b := shareOf(uidA, "gpu", "1", cardA).Key(), shareOf(uidB, "gpu", "1", cardA).Key()
	for _, k := range []share.Key{a, b} {
		_, err := store.Write(k, []byte("{}"))
		require.NoError(t, err)
	}
	keys, err = store.List()
	require.NoError(t, err)
	require.Equal(t, []share.Key{b, a}, keys)

	missing, err := NewDirs(filepath.Join(root, "nowhere"), durable.Files{}).List()
	require.NoError(t, err)
	require.Empty(t, missing)
}

func TestNamesThatWouldLeaveTheDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "../x", "/etc", "a/b", "a\x00b", ".hidden", "ü", "a b"} {
		t.Run(fmt.Sprintf("%q is refused", name), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			specs, dirs := NewSpecs(dir, durable.Files{}), NewDirs(dir, durable.Files{})
			key := share.Key(name + "-0123456789")
			_, err := specs.Write(name, nil)
			require.ErrorIs(t, err, ErrName)
			require.ErrorIs(t, specs.Remove(name), ErrName)
			_, err = dirs.Write(key, nil)
			require.ErrorIs(t, err, ErrName)
			require.ErrorIs(t, dirs.Remove(key), ErrName)
			require.Len(t, tree(t, dir), 1)
		})
	}
}
