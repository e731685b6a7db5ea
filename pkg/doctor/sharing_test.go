// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func TestSharingRuntime(t *testing.T) {
	t.Parallel()
	const other = "sha256:" + "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
	intact := want{doctor.OK, "this driver's version is installed and intact: sha256:", ""}
	for name, tc := range map[string]struct {
		pins  []string
		spoil func(t *testing.T, runtime cdi.Runtime, source string)
		want  []want
	}{
		"installed": {nil, nil, []want{intact}},
		"not installed": {
			nil, func(t *testing.T, r cdi.Runtime, _ string) { require.NoError(t, os.RemoveAll(r.Dir)) },
			[]want{{doctor.Problem, "the sharing runtime is not installed in ", "init container"}},
		},
		"damaged": {
			nil, func(t *testing.T, r cdi.Runtime, _ string) {
				require.NoError(t, os.Chmod(r.Library(cdi.LibraryNVML), 0o600))
				require.NoError(t, os.WriteFile(r.Library(cdi.LibraryNVML), []byte("x"), 0o600))
			},
			[]want{{doctor.Problem, "does not fit its digest", "move that directory away"}},
		},
		"an image without libraries": {
			nil, func(t *testing.T, _ cdi.Runtime, source string) { require.NoError(t, os.RemoveAll(source)) },
			[]want{{doctor.Problem, "--runtime-source", "restart the driver's pod"}},
		},
		"claims of this version and of none":   {[]string{"own", ""}, nil, []want{intact}},
		"a claim of a version that is missing": {[]string{other, "own"}, nil, []want{intact, {doctor.Problem, "1 claim with it: team/c0", "within five minutes"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			source, err := fixture.Libraries(t.Context(), dir, dir+"/runtime")
			require.NoError(t, err)
			own := libraries.NewStore(dir+"/runtime", source)
			digest, err := own.Current()
			require.NoError(t, err)
			runtime, err := own.Find(digest)
			require.NoError(t, err)
			records, err := checkpoint.NewStore(dir+"/claims", durable.Files{})
			require.NoError(t, err)
			for i, pin := range tc.pins {
				uid := "c" + string(rune('0'+i))
				_, err := records.Write(checkpoint.Record{
					Claim: share.Claim{UID: uid, Namespace: "team", Name: uid}, Phase: checkpoint.Prepared, Runtime: strings.Replace(pin, "own", string(digest), 1),
				})
				require.NoError(t, err)
			}
			check := doctor.SharingRuntime{Store: libraries.NewStore(dir+"/runtime", source), Records: dir + "/claims"}
			if tc.spoil != nil {
				tc.spoil(t, runtime, source)
			}
			requireFindings(t, tc.want, check.Examine(t.Context()))
		})
	}
}

func TestArbiter(t *testing.T) {
	t.Parallel()
	const key = "8b101b5f-9bfc-453d-9d43-83ec3d61b3d8-00000000aa"
	dir := t.TempDir()
	lock := filepath.Join(t.TempDir(), "lock")
	check := doctor.Arbiter{Shares: dir, Lock: lock}
	away := want{doctor.Problem, "no arbiter serves this node: " + lock, "see that tranche-arbiter runs"}
	requireFindings(t, []want{away}, check.Examine(t.Context())) // it never ran
	file, err := os.Create(lock)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	requireFindings(t, []want{away}, check.Examine(t.Context())) // it has ended
	require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_EX))
	none := want{doctor.OK, "there is no share on this node", ""}
	requireFindings(t, []want{none}, check.Examine(t.Context()))
	require.NoError(t, os.Mkdir(filepath.Join(dir, key), 0o755))
	requireFindings(t, []want{none}, check.Examine(t.Context())) // one that is being made

	require.NoError(t, os.WriteFile(filepath.Join(dir, key, cdi.ShareFileName), nil, 0o600))
	requireFindings(t, []want{{doctor.Problem, "the arbiter does not serve 1 of 1 share: " + key + ": ask ", "see that tranche-arbiter runs"}}, check.Examine(t.Context()))

	ctx, cancel := context.WithCancel(t.Context())
	wait := fixture.ServeShares(ctx, dir)
	require.Eventually(t, func() bool { return check.Examine(t.Context())[0].Level == doctor.OK }, 30*time.Second, 5*time.Millisecond)
	requireFindings(t, []want{{doctor.OK, "the arbiter serves 1 share", ""}}, check.Examine(t.Context()))
	cancel()
	wait()
}
