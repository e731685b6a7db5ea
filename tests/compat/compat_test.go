// SPDX-License-Identifier: Apache-2.0

// Package compat shows that this release gets on with the files of all others:
// with those of earlier releases, which README.md beside this file tells of, and
// with those of releases to come.
package compat

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// boot is the boot in which the records were written.
const boot = "c1b2f4de-2f0a-4d8e-9c3b-5a6b7c8d9e0f"

// veteran is the claim that all files here are of.
func veteran() *resourceapi.ResourceClaim {
	return fixture.Claim("veteran",
		fixture.Result{Request: "train", Card: 0, Cores: 30, Memory: "4Gi"},
		fixture.Result{Request: "batch/small", Card: 1, OfflineCores: 20, Memory: "2Gi"})
}

// Its shares, said once more: what a file means must not follow the code.
func train() share.Share {
	return share.Share{
		ID: share.ID{
			Claim:   share.Claim{UID: "073b2385-fb93-590f-a167-89e46cb75ddb", Namespace: "team", Name: "veteran"},
			Request: "train", Pool: "node1", Device: "gpu-00000000-0000-4000-8000-000000000000",
			ShareID: "2372c57d-fcc7-5015-9f88-ff8b09cc296c",
		},
		Card: "GPU-00000000-0000-4000-8000-000000000000", Limits: share.Limits{Cores: 30, Memory: 4096},
		Policy: "guaranteed-burst-share", Class: "none", BurstCeiling: 100,
	}
}

func batch() share.Share {
	s := train()
	s.Request, s.Device = "batch/small", "gpu-00000000-0000-4000-8000-000000000001"
	s.ShareID = "a8d52ac7-15a0-5376-9e79-55aebd0bfe9c"
	s.Card, s.Limits = "GPU-00000000-0000-4000-8000-000000000001", share.Limits{OfflineCores: 20, Memory: 2048}
	s.Class = "offline"
	return s
}

// records are the files of testdata/record and what they mean.
func records() map[string]checkpoint.Record {
	return map[string]checkpoint.Record{
		"v1": {
			Claim: train().Claim, Phase: "Prepared", BootID: boot, Shares: []share.Share{train(), batch()},
			Runtime: "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
		},
	}
}

// shareFiles are the files of testdata/share and what they mean.
func shareFiles() map[string]cdi.ShareDocument {
	s := batch()
	return map[string]cdi.ShareDocument{
		"v1": {
			Version: 1, Key: "073b2385-fb93-590f-a167-89e46cb75ddb-77c67723f1",
			Claim: s.Claim, Request: s.Request, Pool: s.Pool, Device: s.Device, ShareID: s.ShareID,
			Card: cdi.ShareCard{
				UUID: s.Card, Vendor: "nvidia", ProductName: "Simulated 24 GiB", PCIBusID: "00000000:02:00.0",
				Memory: 24576, Simulated: true,
			},
			Limits: s.Limits, Policy: s.Policy, Class: s.Class, BurstCeiling: 100,
		},
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return data
}

// requireEveryVersion checks that rows, files and versions belong together.
func requireEveryVersion[T any](t *testing.T, kind string, latest int, rows map[string]T) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", kind, "*"))
	require.NoError(t, err)
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".json"))
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(rows)), names, "each file has a row, see README.md")
	for v := 1; v <= latest; v++ {
		require.Contains(t, rows, fmt.Sprintf("v%d", v), "a file of each version of the %s, see README.md", kind)
	}
}

func TestRecordsOfEveryReleaseAreRead(t *testing.T) {
	t.Parallel()
	requireEveryVersion(t, "record", checkpoint.Version, records())
	for name, want := range records() {
		got, err := checkpoint.Decode(read(t, "testdata", "record", name+".json"), want.Claim.UID)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
}

func TestShareFilesOfEveryReleaseAreRead(t *testing.T) {
	t.Parallel()
	requireEveryVersion(t, "share", cdi.ContractVersion, shareFiles())
	for name, want := range shareFiles() {
		got, err := cdi.ParseShareFile(read(t, "testdata", "share", name+".json"))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		require.Equal(t, batch(), got.Share(), name)
		require.Equal(t, got.Key, got.Share().Key(), "the share is found under the name that it was given")
	}
}

func newNode(t *testing.T, dir string) *fixture.Node {
	t.Helper()
	n, err := fixture.NewNode(dir, 2, boot, durable.Files{})
	require.NoError(t, err)
	return n
}

func recordPath(n *fixture.Node) string {
	return filepath.Join(n.Dir, "state", "claims", string(veteran().UID)+".json")
}

// filesOf are the regular files of the node that belong to the claim.
func filesOf(t *testing.T, n *fixture.Node, uid string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(n.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, uid) {
			all[path] = string(read(t, path))
		}
		return err
	}))
	return all
}

// A whole life under this release, of a claim that an earlier one prepared.
func TestClaimsOfEveryReleaseLiveOn(t *testing.T) {
	t.Parallel()
	for name, want := range records() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, t.TempDir())
			require.NoError(t, os.WriteFile(recordPath(n), read(t, "testdata", "record", name+".json"), 0o600))

			healed, err := n.Restore(t.Context(), want.Claim.UID)
			require.NoError(t, err)
			require.True(t, healed, "spec and directories were missing")
			require.Len(t, filesOf(t, n, want.Claim.UID), 4, "record, spec, and two share.json")

			prepared, err := n.Prepare(t.Context(), veteran())
			require.NoError(t, err)
			require.Len(t, prepared, 2)
			require.Equal(t, "gpu.tranche.dev/share=073b2385-fb93-590f-a167-89e46cb75ddb-cdd9eebf89", prepared[0].CDIDeviceID)
			require.Equal(t, "gpu.tranche.dev/share=073b2385-fb93-590f-a167-89e46cb75ddb-77c67723f1", prepared[1].CDIDeviceID)
			got, found, err := n.Records.Read(want.Claim.UID)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, want, got, "the pinned runtime above all")

			requireRoomIsHeld(t, n)
			require.NoError(t, n.Unprepare(t.Context(), share.Claim{UID: want.Claim.UID}))
			require.Empty(t, filesOf(t, n, want.Claim.UID))
		})
	}
}

// requireRoomIsHeld checks that card 0 has 20 GiB left for others, and no more.
func requireRoomIsHeld(t *testing.T, n *fixture.Node) {
	t.Helper()
	_, err := n.Prepare(t.Context(), fixture.Claim("greedy", fixture.Result{Request: "gpu", Card: 0, Cores: 10, Memory: "20481Mi"}))
	var over *share.OverCommitError
	require.ErrorAs(t, err, &over)
	require.ErrorContains(t, err, "held by team/veteran")
	_, err = n.Prepare(t.Context(), fixture.Claim("modest", fixture.Result{Request: "gpu", Card: 0, Cores: 10, Memory: "20480Mi"}))
	require.NoError(t, err)
}

// newerRecord is a record of the version after this one, whose content is
// nothing that this release could know.
func newerRecord(t *testing.T) []byte {
	t.Helper()
	const body = `{"holder":["the","future"],"phase":7}`
	data, err := json.Marshal(map[string]any{
		"version":  checkpoint.Version + 1,
		"checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "%d %s", checkpoint.Version+1, body))),
		"record":   json.RawMessage(body),
	})
	require.NoError(t, err)
	return data
}

// identity is what tells whether a file was touched.
func identity(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Ino, stat.Mtim, stat.Ctim, info.Mode(), string(read(t, path)))
}

// A node is downgraded while a claim of the newer release is prepared.
func TestARecordOfANewerReleaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	uid := string(veteran().UID)
	n := newNode(t, t.TempDir())
	_, err := n.Prepare(t.Context(), veteran())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(recordPath(n), newerRecord(t), 0o600))
	before := identity(t, recordPath(n))
	files := filesOf(t, n, uid)
	require.Len(t, files, 4)

	// The older driver starts: its stores have seen nothing yet.
	n = newNode(t, n.Dir)
	for range 2 {
		healed, err := n.Restore(t.Context(), uid)
		require.NoError(t, err)
		require.False(t, healed)
		_, err = n.Prepare(t.Context(), veteran())
		require.ErrorIs(t, err, checkpoint.ErrNewer)
		require.ErrorContains(t, err, "prepare claim team/veteran: ")
		require.False(t, prepare.IsTransient(err), "trying again does not help")
		listing, err := n.Records.List()
		require.NoError(t, err)
		require.Len(t, listing.Bad, 1)
		require.ErrorIs(t, listing.Bad[0].Err, checkpoint.ErrNewer)
	}
	require.Equal(t, files, filesOf(t, n, uid), "its containers may be running")
	require.Zero(t, n.Damaged.Load(), "it is not damaged")
	requireRoomIsHeld(t, n)
	require.Equal(t, before, identity(t, recordPath(n)))

	require.NoError(t, n.Unprepare(t.Context(), share.Claim{UID: uid}), "the UID is enough")
	require.Empty(t, filesOf(t, n, uid))
	modest := claims.Of(fixture.Claim("modest"))
	require.NotEmpty(t, filesOf(t, n, modest.UID), "others are not concerned")
	prepared, err := n.Prepare(t.Context(), veteran())
	require.NoError(t, err)
	require.Len(t, prepared, 2, "its room was given back")
}

// What a release to come adds to a file is passed over; what it changes is refused.
func TestShareFilesOfANewerRelease(t *testing.T) {
	t.Parallel()
	for name, want := range shareFiles() {
		data := string(read(t, "testdata", "share", name+".json"))
		added, err := cdi.ParseShareFile([]byte(strings.Replace(data, "{", `{"sla":{"milliseconds":5},`, 1)))
		require.NoError(t, err, name)
		require.Equal(t, want, added, name)
		raised := strings.Replace(data, fmt.Sprintf(`"version": %d`, want.Version), fmt.Sprintf(`"version": %d`, cdi.ContractVersion+1), 1)
		require.NotEqual(t, data, raised)
		_, err = cdi.ParseShareFile([]byte(raised))
		require.ErrorIs(t, err, cdi.ErrVersion, name)
	}
}

// Running containers have these names in their mounts, and kubelet has them in
// its own checkpoint: no release may give others.
func TestKeysAndNamesOutliveUpgrades(t *testing.T) {
	t.Parallel()
	require.Equal(t, share.Key("073b2385-fb93-590f-a167-89e46cb75ddb-cdd9eebf89"), train().Key())
	require.Equal(t, train().Device, card.Card{UUID: train().Card}.DeviceName())
	require.Equal(t, "gpu.tranche.dev/share="+string(train().Key()), cdi.DeviceID(train().Key()))
	require.Equal(t, "/run/tranche/"+string(train().Key()), cdi.ContainerDir(train().Key()))
	require.Equal(t, "/cdi/gpu.tranche.dev-share_u.json", cdi.NewSpecs("/cdi", durable.Files{}).Path("u"))
}
