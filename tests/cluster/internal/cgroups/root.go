// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/lock"
)

// Prefix starts the name of every cgroup of ours, below the root of each hierarchy.
const Prefix = "tranche-e2e-"

// Root is a cluster's own cgroup. It belongs to this process until Remove.
type Root struct {
	name        string
	hierarchies []Hierarchy
	lock        *lock.Lock
}

// Create removes what dead clusters left and makes a cgroup for this process.
func Create(ctx context.Context) (*Root, error) {
	hierarchies, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	// Between making a cgroup and locking it, it looks like a dead one: only one
	// process at a time may sweep or make.
	gate, err := enter(ctx, hierarchies)
	if err != nil {
		return nil, err
	}
	root, err := create(ctx, hierarchies)
	return root, errors.Join(err, gate.Release())
}

// enter waits for its turn to sweep, make or remove.
func enter(ctx context.Context, hierarchies []Hierarchy) (*lock.Lock, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("another cluster has been coming or going for a minute"))
	defer cancel()
	return lock.Exclusive(ctx, hierarchies[0].Path)
}

func create(ctx context.Context, hierarchies []Hierarchy) (*Root, error) {
	if err := sweep(ctx, hierarchies); err != nil {
		return nil, err
	}
	root := &Root{name: fmt.Sprintf("%s%d", Prefix, os.Getpid()), hierarchies: hierarchies}
	for _, h := range hierarchies {
		if err := h.create(root.name, len(hierarchies) == 1); err != nil {
			return nil, errors.Join(err, root.remove(ctx))
		}
	}
	if err := root.hold(); err != nil {
		return nil, errors.Join(err, root.remove(ctx))
	}
	return root, nil
}

// hold marks the cgroup as alive until this process ends.
func (r *Root) hold() (err error) {
	r.lock, err = lock.TryExclusive(filepath.Join(r.hierarchies[0].Path, r.name))
	return err
}

// sweep removes the cgroups of ours whose owner is gone.
func sweep(ctx context.Context, hierarchies []Hierarchy) error {
	// The first hierarchy holds the locks. What is only in the others is half made or half removed.
	first, err := names(hierarchies[0])
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for _, name := range first {
		held, err := lock.TryExclusive(filepath.Join(hierarchies[0].Path, name))
		if errors.Is(err, lock.ErrHeld) {
			live[name] = true
			continue
		}
		if err != nil {
			return err
		}
		if err := held.Release(); err != nil {
			return err
		}
	}
	// The first hierarchy last: what fails half-way is found again.
	for _, h := range slices.Backward(hierarchies) {
		found, err := names(h)
		if err != nil {
			return err
		}
		for _, name := range found {
			if live[name] {
				continue
			}
			if err := removeWithin(ctx, filepath.Join(h.Path, name)); err != nil {
				return fmt.Errorf("remove what a dead cluster left: %w", err)
			}
		}
	}
	return nil
}

// names lists the cgroups of ours in a hierarchy.
func names(h Hierarchy) ([]string, error) {
	entries, err := os.ReadDir(h.Path)
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), Prefix) {
			found = append(found, entry.Name())
		}
	}
	return found, nil
}

// Path is the cgroup's path from the root of each hierarchy, as kubelet wants it.
func (r *Root) Path() string { return "/" + r.name }

// Remove takes the cgroup away; its processes must have ended. If no other cluster
// lives then, last is called, and none can begin until it returns.
func (r *Root) Remove(ctx context.Context, last func() error) (err error) {
	gate, err := enter(ctx, r.hierarchies)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gate.Release()) }()
	if err := r.remove(ctx); err != nil {
		return err
	}
	names, err := names(r.hierarchies[0])
	if err != nil || len(names) > 0 {
		return err
	}
	return last()
}

func (r *Root) remove(ctx context.Context) error {
	var errs []error
	for _, h := range r.hierarchies {
		errs = append(errs, removeWithin(ctx, filepath.Join(h.Path, r.name)))
	}
	if r.lock != nil {
		errs = append(errs, r.lock.Release())
		r.lock = nil
	}
	return errors.Join(errs...)
}

// removeWithin retries for some seconds: the kernel empties a cgroup a moment after its last process ended.
func removeWithin(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := remove(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
