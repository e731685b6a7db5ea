// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/probe"
)

// SharingRuntime checks the libraries that containers mount.
type SharingRuntime struct {
	Store *libraries.Store
	// Records is the directory of claims' records, which name versions.
	Records string
}

// Examine implements Examiner.
func (s SharingRuntime) Examine(context.Context) []Finding {
	current, err := s.Store.Current()
	if err == nil {
		// Not what was compared once, but what is there now.
		err = s.Store.Verify(current)
	}
	var found []Finding
	switch {
	case err == nil:
		found = one(OK, "this driver's version is installed and intact: "+string(current), "")
	case errors.Is(err, libraries.ErrDamaged):
		found = one(Problem, err.Error(), "move that directory away and restart the driver's pod, which installs it again; see whether the disk is sound")
	default:
		found = one(Problem, err.Error(), "restart the driver's pod, whose init container installs it, or run what the message says; no claim can be prepared until then")
	}
	return append(found, s.pinned(current)...)
}

// pinned looks at the other versions that claims have.
func (s SharingRuntime) pinned(current libraries.Digest) []Finding {
	if _, err := os.Stat(s.Records); err != nil {
		return nil // told by the check of records
	}
	store, err := checkpoint.NewStore(s.Records, durable.Files{})
	if err != nil {
		return nil // as above
	}
	listing, err := store.List()
	if err != nil {
		return nil // as above
	}
	claims := map[libraries.Digest][]string{}
	for _, r := range listing.Records {
		if d := libraries.Digest(r.Runtime); d != "" && d != current {
			claims[d] = append(claims[d], r.Claim.String())
		}
	}
	var found []Finding
	for d, of := range claims {
		if err := s.Store.Verify(d); err != nil {
			found = append(found, Finding{
				Level: Problem, Seen: fmt.Sprintf("%v; %s with it: %s", err, number(len(of), "claim"), some(of)),
				Remedy: "nothing for containers that run; those that start again get this driver's version within five minutes",
			})
		}
	}
	return found
}

// Arbiter checks that the shares of this node are served.
type Arbiter struct {
	// Shares is the directory of the shares' directories.
	Shares string
	// Lock is the file that the arbiter has locked which serves this node.
	Lock string
}

// Examine implements Examiner.
func (a Arbiter) Examine(ctx context.Context) []Finding {
	keys, err := cdi.NewDirs(a.Shares, durable.Files{}).List()
	if err != nil {
		return one(Problem, err.Error(), "let the driver read it")
	}
	errs := make([]error, len(keys))
	asked := 0
	var wait sync.WaitGroup
	for i, key := range keys {
		dir := filepath.Join(a.Shares, string(key))
		if _, err := os.Stat(filepath.Join(dir, cdi.ShareFileName)); err != nil {
			continue // it is being made, or has ended
		}
		asked++
		wait.Go(func() { errs[i] = probe.Ask(ctx, dir) })
	}
	wait.Wait()
	if asked == 0 {
		if !isLocked(a.Lock) {
			return one(Problem, "no arbiter serves this node: "+a.Lock+" is not locked", probe.Remedy)
		}
		return one(OK, "an arbiter runs; there is no share on this node that it could be asked for", "")
	}
	var silent []string
	for i, err := range errs {
		if err != nil {
			silent = append(silent, string(keys[i]))
		}
	}
	if len(silent) == 0 {
		return one(OK, "the arbiter serves "+number(asked, "share"), "")
	}
	return one(Problem, fmt.Sprintf("the arbiter does not serve %d of %s: %s: %v", len(silent), number(asked, "share"), some(silent), errors.Join(errs...)), probe.Remedy)
}

// isLocked tells whether somebody holds the lock for himself.
func isLocked(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // it frees the lock that was tried
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
