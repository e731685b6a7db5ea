// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExclusiveKeepsOthersOutUntilItIsReleased(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held, err := Exclusive(t.Context(), dir)
	require.NoError(t, err)

	_, err = TryExclusive(dir)
	require.ErrorIs(t, err, ErrHeld)
	_, err = TryShared(dir)
	require.ErrorIs(t, err, ErrHeld)

	require.NoError(t, held.Release())
	again, err := TryExclusive(dir)
	require.NoError(t, err)
	require.NoError(t, again.Release())
}

func TestExclusiveWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held, err := TryShared(dir)
	require.NoError(t, err)

	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
	defer cancel()
	_, err = Exclusive(ctx, dir)
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorIs(t, err, why)

	released := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { released <- held.Release() })
	turn, err := Exclusive(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, <-released)
	require.NoError(t, turn.Release())
}

func TestSharedHoldersKeepOnlyExclusiveOnesOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := TryShared(dir)
	require.NoError(t, err)
	second, err := TryShared(dir)
	require.NoError(t, err)

	require.NoError(t, first.Release())
	_, err = TryExclusive(dir)
	require.ErrorIs(t, err, ErrHeld, "the second still holds it")
	require.NoError(t, second.Release())
}

func TestLinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	_, err := TryExclusive(link)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrHeld)
}
