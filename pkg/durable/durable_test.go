// SPDX-License-Identifier: Apache-2.0

package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/durable"
)

// steps collects what Files does, with paths below dir.
func steps(dir string) (durable.Files, *[]string) {
	var taken []string
	return durable.Files{Step: func(op, path string) {
		taken = append(taken, op+" "+strings.TrimPrefix(strings.Replace(path, dir, "", 1), "/"))
	}}, &taken
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Mode()
}

// names is what a directory holds, temporary files included.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func put(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	require.NoError(t, os.Chmod(path, mode))
}

func TestWrite(t *testing.T) {
	t.Parallel()
	const (
		replaced = "write .f.json.tmp, fsync .f.json.tmp, rename f.json"
		all      = replaced + ", sync "
	)
	for name, tc := range map[string]struct {
		// before is run on the path of the file.
		before  func(t *testing.T, path string)
		changed bool
		steps   string
	}{
		"a new file is written aside, renamed, and its directory synced": {
			before: func(*testing.T, string) {}, changed: true, steps: all,
		},
		"another content replaces the file": {
			before: func(t *testing.T, path string) { put(t, path, "old", 0o640) }, changed: true, steps: replaced,
		},
		"another content of the same length replaces the file": {
			before: func(t *testing.T, path string) { put(t, path, "NEW", 0o640) }, changed: true, steps: replaced,
		},
		"the same content with another mode replaces the file": {
			before: func(t *testing.T, path string) { put(t, path, "new", 0o600) }, changed: true, steps: replaced,
		},
		"the same content and mode touch nothing": {
			before: func(t *testing.T, path string) { put(t, path, "new", 0o640) },
		},
		"the same content beside a leftover removes the leftover only": {
			before: func(t *testing.T, path string) {
				put(t, path, "new", 0o640)
				put(t, filepath.Join(filepath.Dir(path), ".f.json.tmp"), "ne", 0o600)
			},
			steps: "remove .f.json.tmp, sync ",
		},
		"a leftover of a crash is replaced, whatever its mode": {
			before: func(t *testing.T, path string) {
				put(t, filepath.Join(filepath.Dir(path), ".f.json.tmp"), "longer than the content", 0)
			},
			changed: true, steps: all,
		},
		"a link is replaced and what it leads to is left alone": {
			before: func(t *testing.T, path string) {
				target := filepath.Join(t.TempDir(), "target")
				put(t, target, "new", 0o640)
				require.NoError(t, os.Symlink(target, path))
			},
			changed: true, steps: replaced,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "f.json")
			tc.before(t, path)
			var before uint64
			if !tc.changed {
				before = inode(t, path)
			}
			files, taken := steps(dir)
			changed, err := files.Write(path, []byte("new"), 0o640)
			require.NoError(t, err)
			require.Equal(t, tc.changed, changed)
			require.Equal(t, tc.steps, strings.Join(*taken, ", "))
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, "new", string(content))
			require.Equal(t, fs.FileMode(0o640), mode(t, path), "a regular file of exactly this mode")
			require.Equal(t, []string{"f.json"}, names(t, dir))
			if !tc.changed {
				require.Equal(t, before, inode(t, path))
			}
		})
	}
}

// A reader that has the old file open keeps the old content: it is replaced,
// never written into.
func TestWriteLeavesOpenReadersTheOldContent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	var files durable.Files
	_, err := files.Write(path, []byte("old"), 0o600)
	require.NoError(t, err)
	reader, err := os.Open(path)
	require.NoError(t, err)
	defer reader.Close() //nolint:errcheck // only read
	before := inode(t, path)
	_, err = files.Write(path, []byte("new"), 0o600)
	require.NoError(t, err)
	buf := make([]byte, 3)
	_, err = reader.ReadAt(buf, 0)
	require.NoError(t, err)
	require.Equal(t, "old", string(buf))
	require.NotEqual(t, before, inode(t, path))
}

// errDied stands for the end of the process before a step.
var errDied = errors.New("died")

// dying is Files whose nth step does not happen, and nothing after it.
func dying(nth int) durable.Files {
	return durable.Files{Step: func(string, string) {
		if nth--; nth == 0 {
			panic(errDied)
		}
	}}
}

// died runs change and tells whether it got to its end.
func died(t *testing.T, change func() error) (yes bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			require.Equal(t, errDied, r)
			yes = true
		}
	}()
	require.NoError(t, change())
	return false
}

func TestDeathBeforeAnyStepLeavesTheOldOrTheNewContent(t *testing.T) {
	t.Parallel()
	var seen []string
	for nth := 1; ; nth++ {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		put(t, path, "old", 0o600)
		stopped := died(t, func() error {
			_, err := dying(nth).Write(path, []byte("new"), 0o600)
			return err
		})
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		seen = append(seen, string(content))
		_, err = durable.Files{}.Write(path, []byte("new"), 0o600)
		require.NoError(t, err)
		content, err = os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "new", string(content))
		require.Equal(t, []string{"f"}, names(t, dir), "the retry cleans up")
		if !stopped {
			break
		}
	}
	require.Equal(t, []string{"old", "old", "old", "new"}, seen)
}

func TestRemove(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		have  []string
		steps string
	}{
		"a file":                      {[]string{"f"}, "remove f, sync "},
		"a leftover without its file": {[]string{".f.tmp"}, "remove .f.tmp, sync "},
		"a leftover, then the file":   {[]string{".f.tmp", "f"}, "remove .f.tmp, remove f, sync "},
		"nothing: an earlier try may have died before it synced": {nil, "sync "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, f := range append(tc.have, "other", ".other.tmp") {
				put(t, filepath.Join(dir, f), "x", 0)
			}
			files, taken := steps(dir)
			require.NoError(t, files.Remove(filepath.Join(dir, "f")))
			require.Equal(t, tc.steps, strings.Join(*taken, ", "))
			require.Equal(t, []string{".other.tmp", "other"}, names(t, dir))
		})
	}
	require.NoError(t, durable.Files{}.Remove(filepath.Join(t.TempDir(), "no", "directory", "f")))
}

func TestMkdirAll(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before func(t *testing.T, dir string)
		steps  string
		keeps  bool
	}{
		"all that is missing is made, each synced into its parent": {
			before: func(*testing.T, string) {},
			steps:  "mkdir a, sync , mkdir a/b, sync a, mkdir a/b/c, sync a/b",
		},
		"what is there is left out": {
			before: func(t *testing.T, dir string) { require.NoError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700)) },
			steps:  "mkdir a/b, sync a, mkdir a/b/c, sync a/b",
		},
		"a directory that is there keeps its inode and gets the mode": {
			before: func(t *testing.T, dir string) { require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700)) },
			steps:  "chmod a/b/c", keeps: true,
		},
		"a directory that is right is not touched": {
			before: func(t *testing.T, dir string) {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700))
				require.NoError(t, os.Chmod(filepath.Join(dir, "a/b/c"), 0o751))
			},
			keeps: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "a", "b", "c")
			tc.before(t, dir)
			var before uint64
			if tc.keeps {
				before = inode(t, path)
			}
			files, taken := steps(dir)
			require.NoError(t, files.MkdirAll(path+"/", 0o751))
			require.Equal(t, tc.steps, strings.Join(*taken, ", "))
			require.Equal(t, fs.ModeDir|0o751, mode(t, path))
			if tc.keeps {
				require.Equal(t, before, inode(t, path))
				require.Equal(t, fs.ModeDir|0o700, mode(t, filepath.Dir(path)), "existing parents keep their mode")
			}
		})
	}
}

// The umask belongs to the process, so nothing runs beside this test.
func TestModesAreExactWhateverTheUmask(t *testing.T) { //nolint:paralleltest // see above
	for _, umask := range []int{0, 0o022, 0o077, 0o177} {
		func() {
			defer syscall.Umask(syscall.Umask(umask))
			dir := t.TempDir()
			require.NoError(t, os.Chmod(dir, 0o700))
			var files durable.Files
			require.NoError(t, files.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
			for _, d := range []string{"a", "a/b"} {
				require.Equal(t, fs.ModeDir|0o755, mode(t, filepath.Join(dir, d)), "%s under umask %03o", d, umask)
			}
			for _, m := range []fs.FileMode{0o444, 0o600, 0o666} {
				path := filepath.Join(dir, "f")
				_, err := files.Write(path, []byte("x"), m)
				require.NoError(t, err)
				require.Equal(t, m, mode(t, path), "umask %03o", umask)
			}
		}()
	}
}

func TestRemoveAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "d")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "sub", "deep"), 0o700))
	put(t, filepath.Join(path, "sub", "deep", "f"), "x", 0)
	put(t, filepath.Join(path, ".g.tmp"), "x", 0o600)
	files, taken := steps(dir)
	require.NoError(t, files.RemoveAll(path))
	require.Equal(t, []string{"remove d/.g.tmp", "remove d/sub", "rmdir d", "sync "}, *taken)
	require.Empty(t, names(t, dir))
	*taken = nil
	require.NoError(t, files.RemoveAll(path), "a missing one is success")
	require.Empty(t, *taken)
}

// A link in place of a directory must not make us empty what it leads to.
func TestRemoveAllDoesNotFollowLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	elsewhere := t.TempDir()
	put(t, filepath.Join(elsewhere, "precious"), "x", 0o600)
	link := filepath.Join(dir, "d")
	require.NoError(t, os.Symlink(elsewhere, link))
	err := durable.Files{}.RemoveAll(link)
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.ErrorContains(t, err, "remove directory "+link)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "e"), 0o700))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "e", "inside")))
	require.NoError(t, durable.Files{}.RemoveAll(filepath.Join(dir, "e")))
	require.Equal(t, []string{"precious"}, names(t, elsewhere))
}

func TestErrorsNameVerbAndPath(t *testing.T) {
	t.Parallel()
	var files durable.Files
	for name, tc := range map[string]struct {
		do   func(dir string) error
		verb string
		path string
		is   error
	}{
		"write into a directory that is not there": {
			func(dir string) error { _, err := files.Write(dir+"/no/f", nil, 0o600); return err }, "write ", "/no/f", fs.ErrNotExist,
		},
		"write over a directory": {
			func(dir string) error { _, err := files.Write(dir+"/full", nil, 0o600); return err }, "write ", "/full", syscall.EEXIST,
		},
		"remove what is a full directory": {
			func(dir string) error { return files.Remove(dir + "/full") }, "remove ", "/full", syscall.ENOTEMPTY,
		},
		"remove below a file": {
			func(dir string) error { return files.Remove(dir + "/file/f") }, "remove ", "/file/f", syscall.ENOTDIR,
		},
		"a directory where a file is": {
			func(dir string) error { return files.MkdirAll(dir+"/file", 0o700) }, "make directory ", "/file", syscall.ENOTDIR,
		},
		"a directory below a file": {
			func(dir string) error { return files.MkdirAll(dir+"/file/d", 0o700) }, "make directory ", "/file/d", syscall.ENOTDIR,
		},
		"a directory where a dead link is": {
			func(dir string) error { return files.MkdirAll(dir+"/link", 0o700) }, "make directory ", "/link", fs.ErrNotExist,
		},
		"remove a file as if it were a directory": {
			func(dir string) error { return files.RemoveAll(dir + "/file") }, "remove directory ", "/file", syscall.ENOTDIR,
		},
		"remove a directory below a file": {
			func(dir string) error { return files.RemoveAll(dir + "/file/d") }, "remove directory ", "/file/d", syscall.ENOTDIR,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir+"/file", "x", 0o600)
			require.NoError(t, os.MkdirAll(dir+"/full/d", 0o700))
			require.NoError(t, os.Symlink("nowhere", dir+"/link"))
			err := tc.do(dir)
			require.ErrorContains(t, err, tc.verb+dir+tc.path+": ")
			require.ErrorIs(t, err, tc.is)
			require.Equal(t, []string{"file", "full", "link"}, names(t, dir), "a failure leaves nothing new behind")
		})
	}
}
