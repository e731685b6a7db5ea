// SPDX-License-Identifier: Apache-2.0

package workdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/tests/cluster/internal/lock"
)

const (
	prefix     = "tranche-e2e-"
	logsPrefix = "tranche-cluster-logs-"
	logs       = "log"
)

// volatile are the parts that no later cluster can use.
var volatile = []string{"data", "pki", "etc"}

// Dir is a held work directory.
type Dir struct {
	Path      string
	temporary bool
	lock      *lock.Lock
}

// Temporary sweeps what killed clusters left below parent and makes a new directory there.
func Temporary(ctx context.Context, parent string) (*Dir, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("another cluster has been coming for a minute"))
	defer cancel()
	// A directory looks left behind until it is locked: one at a time.
	gate, err := lock.Exclusive(ctx, parent)
	if err != nil {
		return nil, err
	}
	dir, err := temporary(parent)
	return dir, errors.Join(err, gate.Release())
}

func temporary(parent string) (*Dir, error) {
	if err := sweep(parent); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, fmt.Errorf("create work directory: %w", err)
	}
	held, err := lock.TryExclusive(path)
	if err != nil {
		return nil, err
	}
	return &Dir{Path: path, temporary: true, lock: held}, nil
}

func sweep(parent string) error {
	candidates, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return fmt.Errorf("look for dead clusters: %w", err)
	}
	for _, path := range candidates {
		held, err := lock.TryExclusive(path)
		if err != nil {
			continue // alive, or not a directory of ours
		}
		if err := errors.Join(os.RemoveAll(path), held.Release()); err != nil {
			return fmt.Errorf("remove what a dead cluster left: %w", err)
		}
	}
	return nil
}

// Named takes a directory that the user chose, empty of an earlier cluster.
func Named(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find work directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return nil, fmt.Errorf("create work directory: %w", err)
	}
	held, err := lock.TryExclusive(path)
	if err != nil {
		return nil, fmt.Errorf("use work directory, another cluster may: %w", err)
	}
	dir := &Dir{Path: path, lock: held}
	if err := dir.clear(append(volatile, logs)...); err != nil {
		return nil, errors.Join(err, held.Release())
	}
	return dir, nil
}

// Remove takes everything away but a named directory's logs. With keepLogs those of a
// temporary one move to a directory of their own. It returns where logs are left, if they are.
func (d *Dir) Remove(keepLogs bool) (string, error) {
	defer d.lock.Release() //nolint:errcheck // the process is about to end
	if !d.temporary {
		return filepath.Join(d.Path, logs), d.clear(volatile...)
	}
	left := ""
	if _, err := os.Stat(filepath.Join(d.Path, logs)); keepLogs && err == nil {
		if left, err = os.MkdirTemp(filepath.Dir(d.Path), logsPrefix); err != nil {
			return "", fmt.Errorf("create directory for logs: %w", err)
		}
		// MkdirTemp has made the name ours. The system call replaces an empty directory, os.Rename refuses to.
		if err := unix.Rename(filepath.Join(d.Path, logs), left); err != nil {
			return "", fmt.Errorf("keep logs: %w", err)
		}
	}
	if err := os.RemoveAll(d.Path); err != nil {
		return left, fmt.Errorf("remove work directory: %w", err)
	}
	return left, nil
}

func (d *Dir) clear(parts ...string) error {
	for _, part := range parts {
		if err := os.RemoveAll(filepath.Join(d.Path, part)); err != nil {
			return fmt.Errorf("clear work directory: %w", err)
		}
	}
	return nil
}
