// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/lock"
)

// keep is how many sets stay: the present one, and the one before for those who switch between branches.
const keep = 2

// draftSuffix marks a set that is being built.
const draftSuffix = ".draft"

// prune removes old sets that nobody holds. The caller is inside the gate.
func prune(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return fmt.Errorf("list cache: %w", err)
	}
	type set struct {
		dir  string
		used time.Time
	}
	var sets []set
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !entry.IsDir() {
			continue
		}
		used := info.ModTime()
		if strings.HasSuffix(entry.Name(), draftSuffix) {
			used = time.Time{} // inside the gate nobody builds: a killed build left it
		}
		sets = append(sets, set{filepath.Join(cache, entry.Name()), used})
	}
	slices.SortFunc(sets, func(a, b set) int { return cmp.Or(b.used.Compare(a.used), strings.Compare(a.dir, b.dir)) })
	for i, s := range sets {
		if i < keep && !s.used.IsZero() {
			continue
		}
		held, err := lock.TryExclusive(s.dir)
		if errors.Is(err, lock.ErrHeld) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(s.dir), held.Release()); err != nil {
			return fmt.Errorf("prune cache: %w", err)
		}
	}
	return nil
}
