// SPDX-License-Identifier: Apache-2.0

package libraries_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi/libraries"
)

func inUse(digests ...libraries.Digest) func() ([]libraries.Digest, error) {
	return func() ([]libraries.Digest, error) { return digests, nil }
}

// install puts a version into root that no driver holds.
func install(t *testing.T, root, content string) (*libraries.Store, libraries.Digest) {
	t.Helper()
	from := source(t, content)
	_, err := libraries.Install(t.Context(), from, root)
	require.NoError(t, err)
	store := libraries.NewStore(root, from)
	d, err := store.Current()
	require.NoError(t, err)
	return store, d
}

func TestOnlyWhatNobodyNeedsIsPruned(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	newer, _ := install(t, root, "newer")
	older, held := install(t, root, "older")
	_, err := older.Install(t.Context()) // its driver runs
	require.NoError(t, err)
	_, pinned := install(t, root, "pinned")
	_, unused := install(t, root, "unused")
	for _, foreign := range []string{"sha256-mine", "sha256-" + string(held)[len("sha256:"):] + ".moved-away", "notes"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, foreign), 0o700))
	}
	before := listed(t, root)

	removed, err := newer.Prune(t.Context(), inUse(pinned))
	require.NoError(t, err)
	require.Equal(t, []libraries.Digest{unused}, removed)
	require.Len(t, listed(t, root), len(before)-1)
	for _, d := range []libraries.Digest{held, pinned} {
		_, err := newer.Find(d)
		require.NoError(t, err)
	}
	_, err = newer.Find(unused)
	require.ErrorIs(t, err, libraries.ErrNotInstalled)
	for _, driver := range []*libraries.Store{newer, older} {
		_, err = driver.Current()
		require.NoError(t, err)
	}

	again, err := newer.Prune(t.Context(), inUse(pinned))
	require.NoError(t, err)
	require.Empty(t, again)

	require.NoError(t, older.Close())
	removed, err = newer.Prune(t.Context(), inUse(pinned))
	require.NoError(t, err)
	require.Equal(t, []libraries.Digest{held}, removed, "its driver has ended")
}

func TestNothingIsPrunedWhileItIsNotKnownWhatIsInUse(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	newer, _ := install(t, root, "newer")
	_, unused := install(t, root, "unused")
	unknown := errors.New("a record is damaged")
	_, err := newer.Prune(t.Context(), func() ([]libraries.Digest, error) { return nil, unknown })
	require.ErrorIs(t, err, unknown)
	_, err = newer.Find(unused)
	require.NoError(t, err)

	// A process that does not know its own version must not take it for another's.
	stranger := libraries.NewStore(root, filepath.Join(root, "nowhere"))
	_, err = stranger.Prune(t.Context(), inUse())
	require.ErrorContains(t, err, "--runtime-source")
	require.Len(t, listed(t, root), 2)
}

// Between the look at the records and the removal no claim can get the version.
func TestADriverThatStartsWhileItsVersionIsPrunedHasItAfterwards(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	newer, _ := install(t, root, "newer")
	older, d := install(t, root, "older")
	started := make(chan error, 1)
	_, err := newer.Prune(t.Context(), func() ([]libraries.Digest, error) {
		go func() {
			_, err := older.Install(t.Context())
			started <- err
		}()
		return nil, nil
	})
	require.NoError(t, err)
	require.NoError(t, <-started)
	_, err = older.Find(d)
	require.NoError(t, err)
	removed, err := newer.Prune(t.Context(), inUse())
	require.NoError(t, err)
	require.Empty(t, removed, "it is held")
	require.NoError(t, older.Close())
}

func TestWhatADeadPrunerLeftIsRemovedByTheNext(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	newer, _ := install(t, root, "newer")
	_, unused := install(t, root, "unused")
	place, err := newer.Find(unused)
	require.NoError(t, err)
	draft := filepath.Join(root, ".draft-"+filepath.Base(place.Dir))
	require.NoError(t, os.Rename(place.Dir, draft))
	_, err = newer.Prune(t.Context(), inUse())
	require.NoError(t, err)
	require.NoDirExists(t, draft)
}
