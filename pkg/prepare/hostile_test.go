// SPDX-License-Identifier: Apache-2.0

package prepare_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// alone runs a test on a thread of its own, which may change what only that
// thread has, and ends with it.
func alone(t *testing.T, change func() error, test func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		err := change()
		defer func() { done <- err }()
		if err == nil {
			test()
		}
	}()
	require.NoError(t, <-done)
}

func TestAFullDiskDoesNotKeepPodsFromEnding(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	require.NoError(t, os.Mkdir(state, 0o755))
	tiny := func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		return unix.Mount("tmpfs", state, "tmpfs", 0, "size=256k")
	}
	alone(t, tiny, func() {
		node, err := fixture.NewNode(dir, 2, boot, durable.Files{})
		if !a(t, err) {
			return
		}
		claim, late := small("c"), small("late")
		if _, err := node.Prepare(t.Context(), claim); !a(t, err) {
			return
		}
		full, err := os.Create(filepath.Join(state, "full"))
		if !a(t, err) {
			return
		}
		for err == nil {
			_, err = full.Write(make([]byte, 512))
		}
		if err := full.Close(); !a(t, err) {
			return
		}
		if _, err := node.Prepare(t.Context(), late); err == nil {
			t.Error("there is room for another record: the test proves nothing")
		}
		a(t, node.Unprepare(t.Context(), claims.Of(claim)))
		if left := files(t, node, string(claim.UID)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// a is require.NoError for a goroutine that is not the test's.
func a(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// withoutPrivilege takes from a thread what lets root read any file; the driver
// runs without it.
func withoutPrivilege() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i] = unix.CapUserData{}
	}
	return unix.Capset(&header, &data[0])
}

func TestOneUnreadableRecordConcernsItsClaimOnly(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Join(node.Dir, "state", "claims", string(claim.UID)+".json"), 0))
	again := newNode(t, node.Dir)
	alone(t, withoutPrivilege, func() {
		listing, err := again.Records.List()
		a(t, err)
		if len(listing.Bad) != 1 {
			t.Errorf("%d bad records, not 1", len(listing.Bad))
		}
		_, err = again.Prepare(t.Context(), small("other"))
		a(t, err)
		_, err = again.Prepare(t.Context(), fixture.Claim("big", fixture.Result{Request: "gpu", Cores: 81, Memory: "1Gi"}))
		if err == nil || !strings.Contains(err.Error(), "20 % are held by") {
			t.Errorf("its room is held: %v", err)
		}
		a(t, again.Unprepare(t.Context(), claims.Of(claim)))
	})
	require.Empty(t, files(t, node, string(claim.UID)))
}

func TestRoomOfANewerReleaseIsHeld(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	prepared, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(node.Dir, "state", "claims", string(claim.UID)+".json"), []byte("{"), 0o600))
	path := filepath.Join(node.Dirs.Path(prepared[0].Key()), cdi.ShareFileName)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), `"version": 1`, `"version": 2`, 1)), 0o444))
	_, err = newNode(t, node.Dir).Prepare(t.Context(), fixture.Claim("big", fixture.Result{Request: "gpu", Cores: 91, Memory: "1Gi"}))
	require.ErrorContains(t, err, "10 % are held by team/c")
}

// What CONTRACT.md promises of the order in which a share ends, and what lets a
// crash in the middle be finished.
func TestUnprepareIsNotedFirstAndForgottenLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := newNode(t, dir).Prepare(t.Context(), small("c"))
	require.NoError(t, err)
	var steps []string
	var noted checkpoint.Phase
	var node *fixture.Node
	node, err = fixture.NewNode(dir, 2, boot, durable.Files{Step: func(op, path string) {
		what := map[string]string{"claims": "record", "cdi": "spec"}[filepath.Base(filepath.Dir(path))]
		if filepath.Base(path) == cdi.ShareFileName {
			what = "share.json"
		}
		if (op == "remove" || op == "rename") && what != "" {
			steps = append(steps, op+" "+what)
		}
		if op == "remove" && noted == "" {
			record, _, err := newNode(t, dir).Records.Read(string(small("c").UID))
			require.NoError(t, err)
			noted = record.Phase
		}
	}})
	require.NoError(t, err)
	require.NoError(t, node.Unprepare(t.Context(), claims.Of(small("c"))))
	require.Equal(t, []string{"rename record", "remove spec", "remove share.json", "remove record"}, steps)
	require.Equal(t, checkpoint.Unpreparing, noted)
}

func TestTheRecordIsOnDiskBeforeAnythingElseIsMade(t *testing.T) {
	t.Parallel()
	var steps []string
	node, err := fixture.NewNode(t.TempDir(), 2, boot, durable.Files{Step: func(op, path string) {
		if dir := filepath.Base(filepath.Dir(path)); dir != "state" {
			steps = append(steps, op+" "+dir)
		}
	}})
	require.NoError(t, err)
	steps = nil
	_, err = node.Prepare(t.Context(), small("c"))
	require.NoError(t, err)
	require.Equal(t, []string{"write claims", "fsync claims", "rename claims"}, steps[:3])
}

func TestADamagedRecordIsReportedByTheNextPrepareToo(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(node.Dir, "state", "claims", string(claim.UID)+".json"), nil, 0o600))
	_, err = node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.EqualValues(t, 1, node.Damaged.Load())
}

func TestAfterARebootTheRecordSaysThatNothingIsReadyUntilItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	claim := small("c")
	_, err := newNode(t, dir).Prepare(t.Context(), claim)
	require.NoError(t, err)
	after, err := fixture.NewNode(dir, 2, "boot-2", durable.Files{})
	require.NoError(t, err)
	after.MissingDevice.Store(true)
	_, err = after.Restore(t.Context(), string(claim.UID))
	require.ErrorContains(t, err, "/dev/nvidia0 is missing")
	record, _, err := after.Records.Read(string(claim.UID))
	require.NoError(t, err)
	require.Equal(t, checkpoint.Preparing, record.Phase)
	require.Equal(t, "boot-2", record.BootID)

	// Kubelet asks again, or takes it back: healing is not kubelet.
	after.MissingDevice.Store(false)
	healed, err := after.Restore(t.Context(), string(claim.UID))
	require.NoError(t, err)
	require.False(t, healed)
}
