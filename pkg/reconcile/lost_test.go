// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/reconcile"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func recordPath(node *fixture.Node, claim *resourceapi.ResourceClaim) string {
	return filepath.Join(node.Dir, "state", "claims", string(claim.UID)+".json")
}

func TestALostRecordOfARunningPodIsMadeAnew(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	require.NoError(t, os.Remove(recordPath(node, claim)))
	require.NoError(t, r.Pass(t.Context(), false))
	require.True(t, recorded(t, node, claim))
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
	require.Equal(t, map[string]int{"damaged": 1}, w.healed)
}

func TestFilesWithoutARecordStayWhileNobodyTellsWhoseTheyAre(t *testing.T) {
	t.Parallel()
	for what, silence := range map[string]func(w *world){
		"kubelet does not answer":        func(w *world) { w.podsErr = errors.New("away") },
		"the API server does not answer": func(w *world) { w.apiErr = errors.New("away") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, node, r := start(t)
			claim := running(t, w, node, "c")
			require.NoError(t, os.Remove(recordPath(node, claim)))
			silence(w)
			_ = r.Pass(t.Context(), false)
			require.FileExists(t, node.Specs.Path(string(claim.UID)))
			require.Empty(t, w.healed)
		})
	}
}

func TestADamagedRecordIsKeptWhileTheAPIServerHasTheClaim(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	// Kubelet does not list claims of init containers that have ended.
	delete(w.inUse, name(claim))
	require.NoError(t, os.WriteFile(recordPath(node, claim), nil, 0o600))
	for range 3 {
		require.NoError(t, r.Pass(t.Context(), false))
		w.now = w.now.Add(2 * grace)
	}
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
}

// writeNewer writes a record as a driver of the future does.
func writeNewer(t *testing.T, path string) []byte {
	t.Helper()
	sum := sha256.Sum256(fmt.Appendf(nil, "%d {}", checkpoint.Version+1))
	newer := fmt.Appendf(nil, `{"version": %d, "checksum": "sha256:%x", "record": {}}`, checkpoint.Version+1, sum)
	require.NoError(t, os.WriteFile(path, newer, 0o600))
	return newer
}

func TestANewerRecordIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	delete(w.api, name(claim))
	delete(w.inUse, name(claim))
	newer := writeNewer(t, recordPath(node, claim))
	for range 3 {
		require.NoError(t, r.Pass(t.Context(), true))
		w.now = w.now.Add(2 * grace)
	}
	data, err := os.ReadFile(recordPath(node, claim))
	require.NoError(t, err)
	require.Equal(t, newer, data)
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
	require.Zero(t, node.Damaged.Load())
	require.Empty(t, w.healed)
}

// Kubelet tells names only, and the namesake of a claim that is gone is running.
func TestAClaimWhoseNamesakeRunsIsReleased(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	old := running(t, w, node, "c")
	other := old.DeepCopy()
	other.UID = "11111111-2222-4333-8444-555555555555"
	id := *other.Status.Allocation.Devices.Results[0].ShareID + "x"
	other.Status.Allocation.Devices.Results[0].ShareID = &id
	_, err := node.Prepare(t.Context(), other)
	require.NoError(t, err)
	w.api[name(old)] = other
	require.NoError(t, r.Pass(t.Context(), false))
	w.now = w.now.Add(grace)
	require.NoError(t, r.Pass(t.Context(), false))
	require.False(t, recorded(t, node, old))
	require.True(t, recorded(t, node, other))
}

func TestAKubeletThatHangsDoesNotStopHealing(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	require.NoError(t, os.Remove(node.Specs.Path(string(claim.UID))))
	w.podsHang = true
	require.NoError(t, r.Pass(t.Context(), false), "the pass ends")
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
}

func TestRunEndsWhenTheRecordsAreGone(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	running(t, w, node, "c")
	require.NoError(t, os.RemoveAll(filepath.Join(node.Dir, "state")))
	require.ErrorIs(t, r.Run(t.Context()), checkpoint.ErrDirectoryGone)
}

// run starts healing with passes as often as can be, and nothing to watch.
func run(t *testing.T, r *reconcile.Reconciler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func TestPassesComeAtEveryIntervalAndNowAndThenInFull(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	r.Interval, r.CDIRoot = time.Millisecond, filepath.Join(t.TempDir(), "not-there")
	run(t, r)
	spec := node.Specs.Path(string(claim.UID))
	for range 2 {
		require.NoError(t, os.Remove(spec))
		require.Eventually(t, func() bool { _, err := os.Stat(spec); return err == nil }, 30*time.Second, time.Millisecond, "a missing file is seen by any pass")
		// A wrong content is seen by a full pass only: another one comes.
		want, err := os.ReadFile(spec)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(spec, []byte("{}"), 0o644))
		require.Eventually(t, func() bool { got, err := os.ReadFile(spec); return err == nil && bytes.Equal(got, want) }, 30*time.Second, time.Millisecond)
	}
}
