// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
)

// envHold makes the test binary a process that takes locks of the file that it
// names, says so, and keeps them until it is killed.
const envHold = "TRANCHE_TEST_HOLD_LOCKS_OF"

func TestMain(m *testing.M) {
	path, isHolder := os.LookupEnv(envHold)
	if !isHolder {
		os.Exit(m.Run())
	}
	locks := checkpoint.NewLocks(path)
	_, errClaim := locks.Claim(context.Background(), "u")
	_, errReserve := locks.Reserve(context.Background())
	if err := errors.Join(errClaim, errReserve); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, "holding")
	select {}
}

// lockFuncs are both kinds of lock.
func lockFuncs(l *checkpoint.Locks) map[string]func(context.Context) (func(), error) {
	return map[string]func(context.Context) (func(), error){
		"claim u": func(ctx context.Context) (func(), error) { return l.Claim(ctx, "u") },
		"reservations": func(ctx context.Context) (func(), error) {
			reservation, err := l.Reserve(ctx)
			if err != nil {
				return nil, err
			}
			return reservation.Unlock, nil
		},
	}
}

// requireHeld checks that a lock cannot be had. A lock that is free is given at
// once, however short the patience.
func requireHeld(t *testing.T, lock func(context.Context) (func(), error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// descriptors of this process that are open on path.
func descriptors(t *testing.T, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == path {
			n++
		}
	}
	return n
}

func TestLocksExclude(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	// Two instances are two drivers: the kernel tells their descriptors apart
	// even within one process.
	instances := []*checkpoint.Locks{checkpoint.NewLocks(path), checkpoint.NewLocks(path)}
	for name := range lockFuncs(instances[0]) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const workers, rounds = 8, 25
			// The race detector does not know the kernel's locks: plain numbers
			// would be races to it.
			var inside, total atomic.Int32
			var wg sync.WaitGroup
			errs := make(chan error, workers*rounds)
			for i := range workers {
				lock := lockFuncs(instances[i%2])[name]
				wg.Go(func() {
					for range rounds {
						unlock, err := lock(t.Context())
						if err != nil {
							errs <- err
							return
						}
						if n := inside.Add(1); n != 1 {
							errs <- fmt.Errorf("%d inside at once", n)
						}
						total.Add(1)
						inside.Add(-1)
						unlock()
					}
				})
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				require.NoError(t, err)
			}
			require.EqualValues(t, workers*rounds, total.Load())
		})
	}
	t.Cleanup(func() {
		require.Zero(t, descriptors(t, path), "no descriptor is left")
		for _, l := range instances {
			require.Zero(t, l.Waiting(), "nothing is kept of a lock that nobody holds")
		}
	})
}

func TestLocksOfDifferentThingsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	locks := checkpoint.NewLocks(path)
	unlocks := []func(){}
	for i := range 64 {
		unlock, err := locks.Claim(t.Context(), fmt.Sprintf("8b101b5f-9bfc-453d-9d43-83ec3d61b3%02x", i))
		require.NoError(t, err)
		unlocks = append(unlocks, unlock)
	}
	reservation, err := locks.Reserve(t.Context())
	require.NoError(t, err)
	other := checkpoint.NewLocks(path)
	theirs, err := other.Claim(t.Context(), "yet another")
	require.NoError(t, err)
	require.Equal(t, 65, locks.Waiting())
	for _, f := range append(unlocks, reservation.Unlock, theirs) {
		f()
	}
	require.Zero(t, locks.Waiting())
	require.Zero(t, descriptors(t, path))
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	errEnough := errors.New("enough")
	for name, waiter := range map[string]func(holder *checkpoint.Locks, path string) *checkpoint.Locks{
		"for a goroutine":      func(holder *checkpoint.Locks, _ string) *checkpoint.Locks { return holder },
		"for another instance": func(_ *checkpoint.Locks, path string) *checkpoint.Locks { return checkpoint.NewLocks(path) },
	} {
		for what := range lockFuncs(nil) {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "lock")
				holder := checkpoint.NewLocks(path)
				waits := waiter(holder, path)
				unlock, err := lockFuncs(holder)[what](t.Context())
				require.NoError(t, err)

				ctx, cancel := context.WithCancelCause(t.Context())
				failed := make(chan error)
				go func() {
					_, err := lockFuncs(waits)[what](ctx)
					failed <- err
				}()
				cancel(errEnough)
				err = <-failed
				require.ErrorIs(t, err, errEnough)
				require.ErrorContains(t, err, "lock "+what+": ")
				_, err = lockFuncs(waits)[what](ctx)
				require.ErrorIs(t, err, errEnough, "a context that has ended already")

				require.Equal(t, 1, descriptors(t, path), "the holder's")
				require.Equal(t, 1, holder.Waiting())
				requireHeld(t, lockFuncs(waits)[what])
				unlock()
				unlock, err = lockFuncs(waits)[what](t.Context())
				require.NoError(t, err, "who gave up left the lock usable")
				unlock()
				require.Zero(t, waits.Waiting())
				require.Zero(t, descriptors(t, path))
			})
		}
	}
}

// A driver that is killed leaves no lock behind, though it could not unlock.
func TestLocksOfAKilledProcessAreFree(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), envHold+"="+path)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holding\n", line)

	locks := checkpoint.NewLocks(path)
	waiting := make(chan error, 2)
	for _, lock := range lockFuncs(locks) {
		requireHeld(t, lock)
		go func() {
			unlock, err := lock(t.Context())
			if err == nil {
				unlock()
			}
			waiting <- err
		}()
	}
	other, err := locks.Claim(t.Context(), "another")
	require.NoError(t, err)
	other()

	require.NoError(t, holder.Process.Signal(syscall.SIGKILL))
	require.Error(t, holder.Wait())
	require.NoError(t, <-waiting, "who waited gets the lock")
	require.NoError(t, <-waiting)
	for _, lock := range lockFuncs(locks) {
		unlock, err := lock(t.Context())
		require.NoError(t, err)
		unlock()
	}
	require.Zero(t, descriptors(t, path))
}

func TestLockErrorsNameWhatIsLocked(t *testing.T) {
	t.Parallel()
	locks := checkpoint.NewLocks(filepath.Join(t.TempDir(), "no", "lock"))
	for what, lock := range lockFuncs(locks) {
		_, err := lock(t.Context())
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "lock "+what+": open ")
		require.Zero(t, locks.Waiting())
	}
}

func TestTheLockFileIsForRootOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	reservation, err := checkpoint.NewLocks(path).Reserve(t.Context())
	require.NoError(t, err)
	reservation.Unlock()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
}

func TestAMarkStaysUntilSomebodyDecides(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	mark := func(change bool) (m checkpoint.Mark) {
		// Another instance every time, as another process has.
		reservation, err := checkpoint.NewLocks(path).Reserve(t.Context())
		require.NoError(t, err)
		defer reservation.Unlock()
		if change {
			m, err = reservation.Change()
		} else {
			m, err = reservation.Mark()
		}
		require.NoError(t, err)
		return m
	}
	require.Zero(t, mark(false), "nobody has decided yet")
	first := mark(true)
	require.NotZero(t, first)
	require.Equal(t, first, mark(false))
	require.Equal(t, first, mark(false))
	require.NotEqual(t, first, mark(true))
	require.NoError(t, os.Truncate(path, 0))
	require.Zero(t, mark(false), "a lost mark is no mark")
}

func TestALockOnARemovedFileExcludesNobodyAndIsNotTaken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := checkpoint.NewLocks(path).Reserve(t.Context())
	require.NoError(t, err)
	waited := make(chan error, 1)
	other := checkpoint.NewLocks(path)
	go func() {
		second, err := other.Reserve(t.Context())
		if err == nil {
			// The third must not have the lock beside the second.
			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err = checkpoint.NewLocks(path).Reserve(short); errors.Is(err, context.DeadlineExceeded) {
				err = nil
			} else {
				err = errors.New("two have the reservation")
			}
			second.Unlock()
		}
		waited <- err
	}()
	require.Eventually(t, func() bool { return other.Waiting() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, os.Remove(path))
	first.Unlock()
	require.NoError(t, <-waited)
}
