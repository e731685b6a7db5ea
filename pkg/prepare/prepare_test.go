// SPDX-License-Identifier: Apache-2.0

package prepare_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

const boot = "boot-1"

func newNode(t *testing.T, dir string) *fixture.Node {
	t.Helper()
	node, err := fixture.NewNode(dir, 2, boot, durable.Files{})
	require.NoError(t, err)
	return node
}

// files lists what the node has of a claim, by path below its directory.
func files(t *testing.T, node *fixture.Node, uid string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(node.Dir, func(path string, _ fs.DirEntry, err error) error {
		if rel := strings.TrimPrefix(path, node.Dir); strings.Contains(rel, uid) {
			found = append(found, rel)
		}
		return err
	}))
	return found
}

func small(name string) *resourceapi.ResourceClaim {
	return fixture.Claim(name, fixture.Result{Request: "gpu", Cores: 10, Memory: "1Gi"})
}

func TestPrepareAgainGivesTheSameAnswerAndUnprepareLeavesNothing(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := fixture.Claim("c",
		fixture.Result{Request: "a", Cores: 30, Memory: "4Gi"},
		fixture.Result{Request: "a", Card: 1, Cores: 30, Memory: "4Gi"},
		fixture.Result{Request: "b", Cores: 5, Memory: "1Gi"})
	first, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, first, 3)
	for i, p := range first {
		result := claim.Status.Allocation.Devices.Results[i]
		require.Equal(t, result.Request, p.Request)
		require.Equal(t, result.Device, p.Device)
		require.Equal(t, string(*result.ShareID), p.ShareID)
		require.Equal(t, cdi.DeviceID(p.Key()), p.CDIDeviceID)
	}
	want := files(t, node, string(claim.UID))
	require.Len(t, want, 1+1+3*2, "a record, a spec, and three directories with a file each: %v", want)
	for range 2 {
		again, err := node.Prepare(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	require.Equal(t, want, files(t, node, string(claim.UID)))
	for range 3 {
		require.NoError(t, node.Unprepare(t.Context(), claims.Of(claim)))
		require.Empty(t, files(t, node, string(claim.UID)))
	}
}

func TestUnprepareOfAClaimThatWasNeverHereIsSuccess(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	require.NoError(t, node.Unprepare(t.Context(), share.Claim{UID: "never-seen", Namespace: "n", Name: "x"}))
}

func TestAClaimWithoutOurCardsIsSuccessAndLeavesNothing(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("other")
	claim.Status.Allocation.Devices.Results[0].Driver = "other.example.com"
	prepared, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.Empty(t, prepared)
	require.Empty(t, files(t, node, string(claim.UID)))
}

func TestWhatWasWipedIsWrittenByTheNextPrepare(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	want := files(t, node, string(claim.UID))
	require.NoError(t, os.RemoveAll(node.CDIRoot))
	require.NoError(t, os.RemoveAll(filepath.Join(node.Dir, "state", "shares")))
	_, err = node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, want, files(t, node, string(claim.UID)))
}

func TestAfterARebootTheClaimIsPreparedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	claim := small("c")
	_, err := newNode(t, dir).Prepare(t.Context(), claim)
	require.NoError(t, err)
	after, err := fixture.NewNode(dir, 2, "boot-2", durable.Files{})
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(after.CDIRoot))

	// While the driver is not loaded yet, the record tells that nothing is ready.
	after.MissingDevice.Store(true)
	_, err = after.Prepare(t.Context(), claim)
	require.ErrorContains(t, err, "/dev/nvidia0 is missing")
	require.True(t, prepare.IsTransient(err))
	record, found, err := after.Records.Read(string(claim.UID))
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, checkpoint.Preparing, record.Phase)

	after.MissingDevice.Store(false)
	_, err = after.Prepare(t.Context(), claim)
	require.NoError(t, err)
	record, _, err = after.Records.Read(string(claim.UID))
	require.NoError(t, err)
	require.Equal(t, checkpoint.Prepared, record.Phase)
	require.Equal(t, "boot-2", record.BootID)
	require.FileExists(t, after.Specs.Path(string(claim.UID)))
}

func TestOverCommitIsRefusedNamingTheHolder(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	holder := fixture.Claim("job", fixture.Result{Request: "gpu", Cores: 60, Memory: "20Gi"})
	_, err := node.Prepare(t.Context(), holder)
	require.NoError(t, err)

	// Force-deleted and made again under the same name: another UID.
	again := fixture.Claim("job", fixture.Result{Request: "gpu", Cores: 60, Memory: "2Gi"})
	again.UID = "11111111-2222-4333-8444-555555555555"
	_, err = node.Prepare(t.Context(), again)
	var over *share.OverCommitError
	require.ErrorAs(t, err, &over)
	require.ErrorContains(t, err, "held by team/job (uid "+string(holder.UID)+")")
	require.True(t, prepare.IsTransient(err), "the holder may be ending at this moment")
	require.Empty(t, files(t, node, string(again.UID)), "a refused claim leaves nothing")

	require.NoError(t, node.Unprepare(t.Context(), claims.Of(holder)))
	_, err = node.Prepare(t.Context(), again)
	require.NoError(t, err, "the room is there once the holder is gone")
}

func TestTwoSharesOfOneClaimMayNotOverCommitEither(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	_, err := node.Prepare(t.Context(), fixture.Claim("c",
		fixture.Result{Request: "a", Cores: 60, Memory: "1Gi"}, fixture.Result{Request: "b", Cores: 60, Memory: "1Gi"}))
	require.ErrorContains(t, err, "60 % are held by team/c")
}

// Sixteen claims at once through two drivers of a rolling update, when ten fit.
func TestConcurrentClaimsOfTwoDriversNeverOverCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	drivers := []*fixture.Node{newNode(t, dir), newNode(t, dir)}
	errs := make([]error, 16)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() { _, errs[i] = drivers[i%2].Prepare(t.Context(), small(fmt.Sprint("c", i))) })
	}
	wait.Wait()
	refused := 0
	for _, err := range errs {
		var over *share.OverCommitError
		if err != nil {
			require.ErrorAs(t, err, &over)
			refused++
		}
	}
	require.Equal(t, 6, refused, "10 claims of 10 % fit on a card")
	// What one driver prepared, the other takes back.
	for i := range errs {
		require.NoError(t, drivers[(i+1)%2].Unprepare(t.Context(), claims.Of(small(fmt.Sprint("c", i)))))
	}
	listing, err := drivers[0].Records.List()
	require.NoError(t, err)
	require.Empty(t, listing.Records)
}

// What a driver remembers of the other's claims is never less than there is,
// and a claim is not refused over one that is gone.
func TestWhatTheOtherDriverDoesIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := newNode(t, dir), newNode(t, dir)
	big := func(name string) *resourceapi.ResourceClaim {
		return fixture.Claim(name, fixture.Result{Request: "gpu", Cores: 60, Memory: "1Gi"})
	}
	for round := range 3 {
		first, second := big(fmt.Sprint("first", round)), big(fmt.Sprint("second", round))
		_, err := a.Prepare(t.Context(), first)
		require.NoError(t, err)
		_, err = b.Prepare(t.Context(), second)
		require.ErrorContains(t, err, "held by "+claims.Of(first).String(), "prepared by the other a moment ago")
		require.NoError(t, b.Unprepare(t.Context(), claims.Of(first)))
		_, err = a.Prepare(t.Context(), second)
		require.NoError(t, err, "taken back by the other a moment ago")
		require.NoError(t, b.Unprepare(t.Context(), claims.Of(second)))
	}
}

func TestADamagedRecordIsSetAsideAndOthersGoOn(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"emptied":     func([]byte) []byte { return nil },
		"truncated":   func(b []byte) []byte { return b[:len(b)/2] },
		"bit flipped": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t, t.TempDir())
			victim, other := small("victim"), small("other")
			for _, c := range []*resourceapi.ResourceClaim{victim, other} {
				_, err := node.Prepare(t.Context(), c)
				require.NoError(t, err)
			}
			path := filepath.Join(node.Dir, "state", "claims", string(victim.UID)+".json")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(data), 0o600))

			_, err = node.Restore(t.Context(), string(victim.UID))
			require.NoError(t, err)
			require.EqualValues(t, 1, node.Damaged.Load())
			require.FileExists(t, node.Specs.Path(string(victim.UID)), "its containers may still run")

			// Its room is still taken: 10 % of it, 10 % of the other, 81 % is too much.
			big := fixture.Claim("big", fixture.Result{Request: "gpu", Cores: 81, Memory: "1Gi"})
			_, err = node.Prepare(t.Context(), big)
			require.ErrorContains(t, err, "20 % are held by")
			_, err = node.Prepare(t.Context(), other)
			require.NoError(t, err)

			_, err = node.Prepare(t.Context(), victim)
			require.NoError(t, err, "asked again, it gets a new record")
			require.NoError(t, node.Unprepare(t.Context(), claims.Of(victim)))
			require.Empty(t, files(t, node, string(victim.UID)), "the damaged record goes with its claim")
		})
	}
}

func TestAReallocatedClaimLeavesNothingOfItsFirstAllocation(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	first, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	other := *claim.Status.Allocation.Devices.Results[0].ShareID + "0"
	claim.Status.Allocation.Devices.Results[0].ShareID = &other
	second, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.NotEqual(t, first[0].CDIDeviceID, second[0].CDIDeviceID)
	require.NoDirExists(t, node.Dirs.Path(first[0].Key()))
	require.DirExists(t, node.Dirs.Path(second[0].Key()))
}

func TestTheDirectoryOfAShareKeepsItsInode(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	prepared, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	dir := node.Dirs.Path(prepared[0].Key())
	before, err := os.Stat(dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, cdi.ShareFileName)))
	healed, err := node.Restore(t.Context(), string(claim.UID))
	require.NoError(t, err)
	require.True(t, healed)
	after, err := os.Stat(dir)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "a running container has this very directory mounted")
	require.FileExists(t, filepath.Join(dir, cdi.ShareFileName))
	healed, err = node.Restore(t.Context(), string(claim.UID))
	require.NoError(t, err)
	require.False(t, healed, "nothing is left to mend")
}

func TestACardThatIsAwayMayComeBack(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	_, err := node.Prepare(t.Context(), fixture.Claim("c", fixture.Result{Request: "gpu", Card: 7, Cores: 10, Memory: "1Gi"}))
	require.ErrorIs(t, err, claims.ErrNoSuchCard)
	require.True(t, prepare.IsTransient(err))
	require.ErrorContains(t, err, "claim team/c, request gpu, card "+fixture.Card(7).DeviceName())
}
