// SPDX-License-Identifier: Apache-2.0

package libraries_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
)

const (
	envFrom, envTo = "TRANCHE_LIBRARIES_FROM", "TRANCHE_LIBRARIES_TO"
	installers     = 4
)

// TestMain is an installer when a source is named, and the tests otherwise.
func TestMain(m *testing.M) {
	from, isChild := os.LookupEnv(envFrom)
	if !isChild {
		os.Exit(m.Run())
	}
	if _, err := libraries.Install(context.Background(), from, os.Getenv(envTo)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// source is what a release brings along, told from others by content.
func source(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	r := cdi.Runtime{Dir: dir}
	for _, name := range cdi.Substituted() {
		for _, path := range []string{r.Library(name), r.Simulated(name)} {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(content+" "+filepath.Base(path)), 0o600))
		}
	}
	return dir
}

// listed are the names in a directory that are not hidden.
func listed(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestWhatIsInstalledIsFoundByItsDigest(t *testing.T) {
	t.Parallel()
	root, from := filepath.Join(t.TempDir(), "state", "runtime"), source(t, "one")
	store := libraries.NewStore(root, from)
	_, err := store.Current()
	require.ErrorIs(t, err, libraries.ErrNotInstalled)
	require.ErrorContains(t, err, "tranche-node install-runtime --from "+from+" --to "+root, "the remedy")

	installed, err := libraries.Install(t.Context(), from, root)
	require.NoError(t, err)
	digest, err := store.Current()
	require.NoError(t, err, "a failure is not remembered")
	found, err := store.Find(digest)
	require.NoError(t, err)
	require.Equal(t, installed, found)
	require.Equal(t, filepath.Join(root, strings.Replace(string(digest), ":", "-", 1)), found.Dir)
	require.NoError(t, filepath.WalkDir(found.Dir, func(path string, _ fs.DirEntry, failed error) error {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o555), info.Mode().Perm()&0o555, "containers of any user read %s", path)
		require.Zero(t, info.Mode().Perm()&0o022)
		return failed
	}))
	for _, name := range cdi.Substituted() {
		content, err := os.ReadFile(found.Library(name))
		require.NoError(t, err)
		require.Equal(t, "one "+name+".so.1", string(content))
	}
	own, err := libraries.Of(from)
	require.NoError(t, err)
	require.Equal(t, own, digest)
}

// The digest is the name of directories that outlive upgrades: it must not follow the code.
func TestTheDigestIsOfNamesAndContent(t *testing.T) {
	t.Parallel()
	const format = `cd "$1" && sha256sum runtime/libcuda.so.1 runtime/libnvidia-ml.so.1 sim/libcuda-real.so.1 sim/libnvidia-ml-real.so.1 | sha256sum | cut -d ' ' -f 1`
	from := source(t, "x")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", format, "sh", from).Output()
	require.NoError(t, err)
	got, err := libraries.Of(from)
	require.NoError(t, err)
	require.Equal(t, "sha256:"+strings.TrimSpace(string(out)), string(got))

	other, err := libraries.Of(source(t, "y"))
	require.NoError(t, err)
	require.NotEqual(t, got, other)
}

func TestNothingIsEverOverwritten(t *testing.T) {
	t.Parallel()
	root, from := t.TempDir(), source(t, "one")
	first, err := libraries.Install(t.Context(), from, root)
	require.NoError(t, err)
	before, err := os.Stat(first.Library(cdi.LibraryCUDA))
	require.NoError(t, err)

	again, err := libraries.Install(t.Context(), from, root)
	require.NoError(t, err)
	require.Equal(t, first, again)
	after, err := os.Stat(first.Library(cdi.LibraryCUDA))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "a running container has this very file mounted")

	second, err := libraries.Install(t.Context(), source(t, "two"), root)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.Len(t, listed(t, root), 2)

	// Damaged on the disk: it is neither used nor mended under those who use it.
	require.NoError(t, os.Chmod(first.Library(cdi.LibraryCUDA), 0o755))
	require.NoError(t, os.WriteFile(first.Library(cdi.LibraryCUDA), []byte("another"), 0o755))
	_, err = libraries.Install(t.Context(), from, root)
	require.ErrorIs(t, err, libraries.ErrDamaged)
	require.ErrorContains(t, err, "move it away")
	content, err := os.ReadFile(first.Library(cdi.LibraryCUDA))
	require.NoError(t, err)
	require.Equal(t, "another", string(content))
	_, err = libraries.NewStore(root, from).Current()
	require.ErrorIs(t, err, libraries.ErrDamaged)
}

func TestAVersionIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	root, from := t.TempDir(), source(t, "one")
	store := libraries.NewStore(root, from)
	// What an installer left behind that died in the middle.
	require.NoError(t, os.MkdirAll(filepath.Join(root, ".draft-1", "runtime"), 0o700))
	r, err := libraries.Install(t.Context(), from, root)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(root, ".draft-1"))
	digest, err := store.Current()
	require.NoError(t, err)
	require.NoError(t, os.Remove(r.Simulated(cdi.LibraryNVML)))
	_, err = store.Find(digest)
	require.ErrorIs(t, err, libraries.ErrNotInstalled, "looked at each time, for a claim must not get a mount of nothing")
}

func TestManyInstallAtOnce(t *testing.T) {
	t.Parallel()
	root, from := filepath.Join(t.TempDir(), "runtime"), source(t, "one")
	errs := make([]error, installers)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), envFrom+"="+from, envTo+"="+root)
			out, err := cmd.CombinedOutput()
			if err != nil {
				errs[i] = fmt.Errorf("%w: %s", err, out)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, listed(t, root), 1)
	_, err := libraries.NewStore(root, from).Current()
	require.NoError(t, err)
}

func TestSomebodyWhoHangsIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file, err := os.Create(filepath.Join(root, ".lock"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = libraries.Install(ctx, source(t, "one"), root)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "somebody else who installs")
	require.Empty(t, listed(t, root))
}

func TestWhatCannotBeInstalledOrFound(t *testing.T) {
	t.Parallel()
	lacking := source(t, "one")
	require.NoError(t, os.Remove(filepath.Join(lacking, "runtime", "libcuda.so.1")))
	_, err := libraries.Install(t.Context(), lacking, t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(lacking, "runtime/libcuda.so.1"))

	_, err = libraries.NewStore(t.TempDir(), lacking).Current()
	require.ErrorContains(t, err, "--runtime-source says where it is")

	store := libraries.NewStore(t.TempDir(), source(t, "one"))
	for _, digest := range []libraries.Digest{"", "sha256:", "sha256:../../etc", "md5:00", "sha256:" + libraries.Digest(strings.Repeat("0", 62))} {
		_, err := store.Find(digest)
		require.ErrorContains(t, err, "is not sha256:", string(digest))
	}
	_, err = store.Find(libraries.Digest("sha256:" + strings.Repeat("0", 64)))
	require.ErrorIs(t, err, libraries.ErrNotInstalled)
}
