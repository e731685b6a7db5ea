// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi/libraries"
)

// prune removes the versions of the sharing runtime that nobody needs any more.
// One that is left only takes room: that it cannot be removed is told, and is no
// fault of the pass, which would be repeated at once.
func (r *Reconciler) prune(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, prunePatience)
	defer cancel()
	removed, err := r.Libraries.Prune(ctx, r.pinned)
	if len(removed) > 0 {
		klog.FromContext(ctx).Info("Removed versions of the sharing runtime that nobody uses", "digests", removed)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Versions of the sharing runtime that nobody uses may be left", "err", err)
	}
}

// pinned are the versions that the containers of claims have. Where one claim's
// cannot be known, for want of a sound record, the error names the claim.
func (r *Reconciler) pinned() ([]libraries.Digest, error) {
	// Files first: a claim whose record was made since has no files among them.
	unrecorded, err := r.onDisk()
	if err != nil {
		return nil, err
	}
	listing, err := r.Records.List()
	if err != nil {
		return nil, err
	}
	for _, bad := range listing.Bad {
		return nil, fmt.Errorf("version of the claim with uid %s is not known: %w", bad.ClaimUID, bad.Err)
	}
	var digests []libraries.Digest
	for _, record := range listing.Records {
		delete(unrecorded, record.Claim.UID)
		digests = append(digests, libraries.Digest(record.Runtime))
	}
	for uid := range unrecorded {
		return nil, fmt.Errorf("version of the claim with uid %s is not known: it has files and no record", uid)
	}
	return digests, nil
}
