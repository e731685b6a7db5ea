// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
)

// During a rolling update another process changes the files.
func TestCacheSeesWhatAnotherStoreDoes(t *testing.T) {
	t.Parallel()
	other := of("u")
	other.Phase = checkpoint.Prepared
	sameSize := of("u")
	sameSize.BootID = "c"
	for name, tc := range map[string]struct {
		change func(t *testing.T, dir string, theirs *checkpoint.Store)
		want   *checkpoint.Record
		is     error
	}{
		"nothing": {func(*testing.T, string, *checkpoint.Store) {}, new(of("u")), nil},
		"another record": {
			func(t *testing.T, _ string, theirs *checkpoint.Store) { write(t, theirs, other) }, &other, nil,
		},
		"another record of the same size and time": {
			func(t *testing.T, dir string, theirs *checkpoint.Store) {
				write(t, theirs, sameSize)
				age(t, dir, "u.json")
			}, &sameSize, nil,
		},
		"removed": {
			func(t *testing.T, _ string, theirs *checkpoint.Store) { require.NoError(t, theirs.Remove("u")) }, nil, nil,
		},
		"removed and written again": {
			func(t *testing.T, _ string, theirs *checkpoint.Store) {
				require.NoError(t, theirs.Remove("u"))
				write(t, theirs, other)
			}, &other, nil,
		},
		"set aside": {
			func(t *testing.T, _ string, theirs *checkpoint.Store) {
				_, err := theirs.SetAside("u")
				require.NoError(t, err)
			}, nil, nil,
		},
		"emptied in place, its time kept": {
			func(t *testing.T, dir string, _ *checkpoint.Store) {
				put(t, nil, dir, "u.json")
				age(t, dir, "u.json")
			}, nil, checkpoint.ErrDamaged,
		},
		"another content of the same size in place": {
			func(t *testing.T, dir string, _ *checkpoint.Store) { put(t, encode(t, sameSize), dir, "u.json") }, &sameSize, nil,
		},
		"replaced by a newer driver": {
			func(t *testing.T, dir string, _ *checkpoint.Store) { put(t, file(2, "{}"), dir, "u.json") }, nil, checkpoint.ErrNewer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ours, theirs := open(t, dir), open(t, dir)
			write(t, ours, of("u"))
			age(t, dir, "u.json")
			_, found, err := ours.Read("u")
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, 1, ours.Cached(), "or nothing is tested here")
			tc.change(t, dir, theirs)
			got, found, err := ours.Read("u")
			records, bad := list(t, ours)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
				require.ErrorIs(t, bad["u"], tc.is)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want != nil, found)
			if tc.want != nil {
				require.Equal(t, *tc.want, got)
				require.Equal(t, []checkpoint.Record{*tc.want}, records)
			} else {
				require.Empty(t, records)
				require.Zero(t, ours.Cached(), "what is gone is forgotten")
			}
		})
	}
}

// A file that was written a moment ago may be replaced by one with its inode,
// size and time. A time that is yet to come stands for that moment.
func TestYoungFilesAreNotCached(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "u.json")
	s := open(t, dir)
	write(t, s, of("u"))
	young := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(path, young, young))
	_, _, err := s.Read("u")
	require.NoError(t, err)
	replaced := of("u")
	replaced.BootID = "c"
	put(t, encode(t, replaced), path)
	require.NoError(t, os.Chtimes(path, young, young))
	got, _, err := s.Read("u")
	require.NoError(t, err)
	require.Equal(t, replaced, got)
}

func TestCallersCannotChangeTheCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	write(t, s, of("u"))
	age(t, dir, "u.json")
	for range 3 {
		got, _, err := s.Read("u")
		require.NoError(t, err)
		require.Equal(t, of("u"), got)
		got.Shares[0].Limits.Cores = 99
		got.Phase = checkpoint.Unpreparing
	}
	require.Equal(t, 1, s.Cached())
}

func BenchmarkList128(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir)
	for i := range 128 {
		uid := fmt.Sprintf("u%d", i)
		put(b, encode(b, of(uid)), dir, uid+".json")
		age(b, dir, uid+".json")
	}
	for b.Loop() {
		records, _ := list(b, s)
		require.Len(b, records, 128)
	}
}
