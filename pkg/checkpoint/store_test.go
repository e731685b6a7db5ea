// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
)

func open(t testing.TB, dir string) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.NewStore(dir, durable.Files{})
	require.NoError(t, err)
	return s
}

func of(uid string) checkpoint.Record {
	claim := share.Claim{UID: uid, Namespace: "team", Name: uid}
	return checkpoint.Record{Claim: claim, Phase: checkpoint.Preparing, BootID: "b", Shares: []share.Share{{
		ID: share.ID{Claim: claim, Request: "gpu", Pool: "node1", Device: "gpu-a"}, Card: "GPU-A", Limits: share.Limits{Cores: 1},
	}}}
}

func write(t testing.TB, s *checkpoint.Store, r checkpoint.Record) {
	t.Helper()
	_, err := s.Write(r)
	require.NoError(t, err)
}

// put makes a file as something else than a store would.
func put(t testing.TB, data []byte, path ...string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(path...), data, 0o600))
}

// age makes a file old, so that it is cached when it is read. All aged files
// have the same time.
func age(t testing.TB, path ...string) {
	t.Helper()
	before := time.Unix(1_700_000_000, 0)
	require.NoError(t, os.Chtimes(filepath.Join(path...), before, before))
}

func list(t testing.TB, s *checkpoint.Store) (records []checkpoint.Record, bad map[string]error) {
	t.Helper()
	listing, err := s.List()
	require.NoError(t, err)
	bad = map[string]error{}
	for _, b := range listing.Bad {
		require.NotContains(t, bad, b.ClaimUID, "listed once")
		bad[b.ClaimUID] = b.Err
	}
	return listing.Records, bad
}

// files are all regular files below dir with their content.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	}))
	return all
}

func TestStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "claims")
	s := open(t, dir)
	_, found, err := s.Read("u1")
	require.NoError(t, err)
	require.False(t, found)
	require.NoError(t, s.Remove("u1"), "what is not there is removed already")
	records, bad := list(t, s)
	require.Empty(t, records)
	require.Empty(t, bad)

	changed, err := s.Write(of("u1"))
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = s.Write(of("u1"))
	require.NoError(t, err)
	require.False(t, changed, "the same record again changes nothing")
	write(t, s, of("u2"))
	prepared := of("u1")
	prepared.Phase = checkpoint.Prepared
	changed, err = s.Write(prepared)
	require.NoError(t, err)
	require.True(t, changed)

	got, found, err := s.Read("u1")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, prepared, got)
	records, bad = list(t, s)
	require.Equal(t, []checkpoint.Record{prepared, of("u2")}, records)
	require.Empty(t, bad)

	for path, want := range map[string]fs.FileMode{"": 0o700, "damaged": 0o700, "u1.json": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), "%q names pods and namespaces: for root only", path)
	}

	require.NoError(t, s.Remove("u1"))
	records, _ = list(t, s)
	require.Equal(t, []checkpoint.Record{of("u2")}, records)
	require.Equal(t, map[string]string{"u2.json": string(encode(t, of("u2")))}, files(t, dir))
}

func TestStoreRefusesWhatIsNoFileName(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"empty":                   "",
		"the parent directory":    "..",
		"a way out":               "../u",
		"a path":                  "a/b",
		"an absolute path":        "/etc/passwd",
		"hidden":                  ".u",
		"an option":               "-u",
		"with a suffix":           "u.json",
		"with white space":        "u u",
		"with a line break":       "u\n",
		"with a zero byte":        "u\x00",
		"not ASCII":               "ü",
		"longer than a file name": strings.Repeat("u", 129),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			_, errWrite := s.Write(of(bad))
			_, found, errRead := s.Read(bad)
			_, errAside := s.SetAside(bad)
			require.False(t, found)
			for verb, err := range map[string]error{
				"write record": errWrite, "read record": errRead, "remove record": s.Remove(bad), "set record aside": errAside,
			} {
				require.ErrorContains(t, err, fmt.Sprintf("%s: claim UID %q is not usable as a file name", verb, bad))
			}
			require.Empty(t, files(t, dir))
		})
	}
	longest := strings.Repeat("u", 128)
	s := open(t, t.TempDir())
	write(t, s, of(longest))
	_, found, err := s.Read(longest)
	require.NoError(t, err)
	require.True(t, found)
}

func TestListTellsRecordsFromAllElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	write(t, s, of("good"))
	put(t, nil, dir, "emptied.json")
	put(t, encode(t, of("good")), dir, "renamed.json")
	put(t, file(checkpoint.Version+1, `{"new":"world"}`), dir, "newer.json")
	put(t, []byte("{"), dir, "damaged", "aside.json")
	put(t, []byte("{"), dir, "damaged", "good.json")
	before := files(t, dir)
	// What follows is no record at all and is passed over.
	put(t, []byte("x"), dir, "notes.txt")
	put(t, encode(t, of("u")), dir, ".u.json.tmp")
	put(t, encode(t, of("u")), dir, "u.json~")
	put(t, encode(t, of("u")), dir, "u u.json")
	put(t, []byte("x"), dir, ".json")
	put(t, []byte("x"), dir, "damaged", "README")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.json"), 0o700))
	require.NoError(t, os.Symlink("good.json", filepath.Join(dir, "link.json")))
	foreign := files(t, dir)

	for range 2 { // from the disk, then from the cache
		records, bad := list(t, s)
		require.Equal(t, []checkpoint.Record{of("good")}, records)
		require.Len(t, bad, 4)
		require.ErrorIs(t, bad["newer"], checkpoint.ErrNewer)
		for _, uid := range []string{"emptied", "renamed", "aside"} {
			require.ErrorIs(t, bad[uid], checkpoint.ErrDamaged, uid)
		}
		require.ErrorContains(t, bad["renamed"], filepath.Join(dir, "renamed.json"), "the error says where to look")
		for uid := range before {
			age(t, dir, uid)
		}
	}
	require.Equal(t, foreign, files(t, dir), "listing changes nothing on disk")
	require.NoError(t, s.Remove("emptied"))
	require.NotContains(t, files(t, dir), "emptied.json")
}

// The life of a damaged record: seen, set aside, prepared anew, released.
func TestSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	_, err := s.SetAside("u")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "set record aside: ")

	write(t, s, of("u"))
	put(t, []byte("first damage"), dir, "u.json")
	_, found, err := s.Read("u")
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, filepath.Join(dir, "u.json"))
	require.False(t, found)
	aside, err := s.IsSetAside("u")
	require.NoError(t, err)
	require.False(t, aside)

	path, err := s.SetAside("u")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "damaged", "u.json"), path)
	aside, err = s.IsSetAside("u")
	require.NoError(t, err)
	require.True(t, aside)
	_, found, err = s.Read("u")
	require.NoError(t, err)
	require.False(t, found, "the claim can be prepared again")
	records, bad := list(t, s)
	require.Empty(t, records)
	require.ErrorIs(t, bad["u"], checkpoint.ErrDamaged)
	require.ErrorContains(t, bad["u"], "set aside")

	write(t, s, of("u"))
	records, bad = list(t, s)
	require.Equal(t, []checkpoint.Record{of("u")}, records)
	require.Empty(t, bad, "it is listed by its record")
	require.Equal(t, "first damage", files(t, dir)["damaged/u.json"], "and the old content can still be looked at")

	put(t, []byte("second damage"), dir, "u.json")
	_, err = s.SetAside("u")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"damaged/u.json": "second damage"}, files(t, dir))

	write(t, s, of("u"))
	require.NoError(t, s.Remove("u"))
	require.Empty(t, files(t, dir), "what was set aside goes with its claim")
}

// What a claim holds must be known at every moment, or a card is given twice.
func TestARecordThatIsSetAsideIsListedAllTheWhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	write(t, s, of("a"))
	write(t, s, of("z"))
	for range 500 {
		put(t, []byte("damage"), dir, "u.json")
		done := make(chan error)
		go func() {
			_, err := s.SetAside("u")
			done <- err
		}()
		_, bad := list(t, s)
		require.NoError(t, <-done)
		require.Contains(t, bad, "u")
		require.NoError(t, s.Remove("u"))
	}
}

// A driver that died while it wrote leaves a temporary file. It is no record,
// and goes with the next change of its claim.
func TestLeftoversOfACrash(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(s *checkpoint.Store) error{
		"the record is written":           func(s *checkpoint.Store) error { _, err := s.Write(of("u")); return err },
		"the claim is removed":            func(s *checkpoint.Store) error { return s.Remove("u") },
		"the record is written unchanged": func(s *checkpoint.Store) error { _, err := s.Write(of("kept")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			write(t, s, of("kept"))
			for _, uid := range []string{"u", "kept"} {
				put(t, encode(t, of(uid))[:40], dir, "."+uid+".json.tmp")
			}
			_, found, err := s.Read("u")
			require.NoError(t, err)
			require.False(t, found)
			records, bad := list(t, s)
			require.Equal(t, []checkpoint.Record{of("kept")}, records)
			require.Empty(t, bad)
			require.NoError(t, next(s))
			left := 0
			for path := range files(t, dir) {
				if strings.HasSuffix(path, ".tmp") {
					left++
				}
			}
			require.Equal(t, 1, left, "only the other claim's is left")
		})
	}
}

func TestStoreErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, nil, dir, "file")
	_, err := checkpoint.NewStore(filepath.Join(dir, "file"), durable.Files{})
	require.ErrorContains(t, err, "open records: make directory "+filepath.Join(dir, "file"))

	s := open(t, filepath.Join(dir, "records"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "records", "u.json"), 0o700))
	_, found, err := s.Read("u")
	require.ErrorContains(t, err, filepath.Join(dir, "records", "u.json"))
	require.NotErrorIs(t, err, checkpoint.ErrDamaged, "what cannot be read may be fine")
	require.False(t, found)
	_, err = s.Write(of("u"))
	require.ErrorContains(t, err, "write record of claim team/u: ")

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "records", "damaged")))
	_, err = s.List()
	require.ErrorContains(t, err, "list damaged records: ")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "records")))
	_, err = s.List()
	require.ErrorContains(t, err, "list records: ")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, found, err = s.Read("u")
	require.NoError(t, err)
	require.False(t, found)
}

// Many goroutines on many claims, for the race detector.
func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stores := []*checkpoint.Store{open(t, dir), open(t, dir)}
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for i := range 8 {
		uid := fmt.Sprintf("u%d", i)
		wg.Go(func() {
			for n := range 10 {
				s := stores[n%2]
				r := of(uid)
				r.BootID = fmt.Sprint(n)
				if _, err := s.Write(r); err != nil {
					errs <- err
				}
				got, found, err := s.Read(uid)
				if err != nil || !found || got.BootID != r.BootID {
					errs <- fmt.Errorf("%s %d: read %v, %v, %w", uid, n, got, found, err)
				}
				if _, err := stores[1-n%2].List(); err != nil {
					errs <- err
				}
			}
			errs <- stores[0].Remove(uid)
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Empty(t, files(t, dir))
}

func TestAStagedRecordIsSeenOnceItIsPublished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	staged, err := s.Stage(of("u"))
	require.NoError(t, err)
	_, found, err := s.Read("u")
	require.NoError(t, err)
	require.False(t, found)
	records, bad := list(t, s)
	require.Empty(t, records)
	require.Empty(t, bad)
	require.NoError(t, staged.Publish())
	got, found, err := s.Read("u")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, of("u"), got)
	require.NoError(t, staged.Settle())

	staged, err = s.Stage(of("v"))
	require.NoError(t, err)
	staged.Discard()
	require.Equal(t, map[string]string{"u.json": string(encode(t, of("u")))}, files(t, dir))
	_, err = s.Stage(of("../u"))
	require.ErrorContains(t, err, "write record: claim UID")
}
