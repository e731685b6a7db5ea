// SPDX-License-Identifier: Apache-2.0

package prepare_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// pinned is the version of the runtime that a claim's record names, and requires
// that the spec is of the same.
func pinned(t *testing.T, node *fixture.Node, uid string) libraries.Digest {
	t.Helper()
	record, found, err := node.Records.Read(uid)
	require.NoError(t, err)
	require.True(t, found)
	spec, err := os.ReadFile(node.Specs.Path(uid))
	require.NoError(t, err)
	require.Contains(t, string(spec), record.Runtime+"/runtime/libcuda.so.1")
	return libraries.Digest(record.Runtime)
}

func TestAClaimKeepsTheRuntimeThatItWasPreparedWith(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, late := small("old"), small("late")
	node := newNode(t, dir)
	_, err := node.Prepare(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, fixture.RuntimeA, pinned(t, node, string(old.UID)))

	upgraded := newNode(t, dir)
	upgraded.Installed = []libraries.Digest{fixture.RuntimeA, fixture.RuntimeB}
	_, err = upgraded.Prepare(t.Context(), late)
	require.NoError(t, err)
	require.Equal(t, fixture.RuntimeB, pinned(t, upgraded, string(late.UID)))
	healed, err := upgraded.Restore(t.Context(), string(old.UID))
	require.NoError(t, err)
	require.False(t, healed)
	_, err = upgraded.Prepare(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, fixture.RuntimeA, pinned(t, upgraded, string(old.UID)))

	rebooted, err := fixture.NewNode(dir, 2, "boot-2", durable.Files{})
	require.NoError(t, err)
	rebooted.Installed = upgraded.Installed
	_, err = rebooted.Restore(t.Context(), string(old.UID))
	require.NoError(t, err)
	require.Equal(t, fixture.RuntimeA, pinned(t, rebooted, string(old.UID)))

	// Somebody has removed it: a container that starts again gets what there is.
	rebooted.Installed = []libraries.Digest{fixture.RuntimeB}
	healed, err = rebooted.Restore(t.Context(), string(old.UID))
	require.NoError(t, err)
	require.True(t, healed)
	require.Equal(t, fixture.RuntimeB, pinned(t, rebooted, string(old.UID)))
}

func TestNothingIsPreparedWithoutARuntime(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	node.Installed = nil
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.ErrorIs(t, err, libraries.ErrNotInstalled)
	require.ErrorContains(t, err, "prepare claim team/c: ")
	require.True(t, prepare.IsTransient(err), "it may be being installed")
	require.NoFileExists(t, node.Specs.Path(string(claim.UID)))

	node.Installed = []libraries.Digest{fixture.RuntimeA}
	_, err = node.Prepare(t.Context(), claim)
	require.NoError(t, err)
}

func TestAShareIsNamedToTheRuntimeOnlyOnceItIsServed(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	node.NotServed.Store(true)
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.True(t, prepare.IsTransient(err), "the arbiter may come back")
	keys, errList := node.Dirs.List()
	require.NoError(t, errList)
	require.Len(t, keys, 1)
	for _, says := range []string{"claim team/c", "request gpu", "card " + string(fixture.Card(0).UUID), string(keys[0]), filepath.Join(node.Dirs.Path(keys[0]), "arbiter.sock")} {
		require.ErrorContains(t, err, says)
	}
	require.FileExists(t, filepath.Join(node.Dirs.Path(keys[0]), cdi.ShareFileName), "by which the arbiter knows of it")
	require.NoFileExists(t, node.Specs.Path(string(claim.UID)))
	record, _, err := node.Records.Read(string(claim.UID))
	require.NoError(t, err)
	require.Equal(t, checkpoint.Preparing, record.Phase)

	node.NotServed.Store(false)
	_, err = node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
}

func TestHealingWaitsForTheArbiterOnlyAfterAReboot(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	spec := node.Specs.Path(string(claim.UID))

	node.NotServed.Store(true)
	require.NoError(t, os.Remove(spec))
	healed, err := node.Restore(t.Context(), string(claim.UID))
	require.NoError(t, err, "its containers run, and wait for the arbiter by themselves")
	require.True(t, healed)
	require.FileExists(t, spec)

	require.NoError(t, os.Remove(spec))
	rebooted, err := fixture.NewNode(node.Dir, 2, "boot-2", durable.Files{})
	require.NoError(t, err)
	rebooted.NotServed.Store(true)
	_, err = rebooted.Restore(t.Context(), string(claim.UID))
	require.ErrorContains(t, err, "the arbiter does not serve share")
	require.NoFileExists(t, spec)
}

// meeting is an arbiter that serves each share once all of them are waited for.
type meeting struct {
	mu      sync.Mutex
	missing int
	all     chan struct{}
}

func (m *meeting) Await(ctx context.Context, _ share.Key, _ string) error {
	m.mu.Lock()
	if m.missing--; m.missing == 0 {
		close(m.all)
	}
	m.mu.Unlock()
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestSharesOfAClaimAreWaitedForAtTheSameTime(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	node.Arbiter = &meeting{missing: 3, all: make(chan struct{})}
	_, err := node.Prepare(t.Context(), fixture.Claim("c",
		fixture.Result{Request: "a", Cores: 30, Memory: "4Gi"},
		fixture.Result{Request: "a", Card: 1, Cores: 30, Memory: "4Gi"},
		fixture.Result{Request: "b", Cores: 5, Memory: "1Gi"}))
	require.NoError(t, err)
}
