// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/share"
)

// pass is what one pass knows of the world outside of the node's disk.
type pass struct {
	*Reconciler
	// inUse are the claims that kubelet lists, by name: it does not tell UIDs.
	inUse map[types.NamespacedName]struct{}
	// shared are names that several records have: of those, kubelet's word does
	// not tell which claim is meant.
	shared map[types.NamespacedName]bool
	// present are the UIDs that have something on the node.
	present map[string]bool
}

// compare holds what is on the node against kubelet and the API server: claims
// whose record was lost or damaged get a new one, claims that are gone are
// released, files of nobody are removed. Without a word from kubelet nothing is
// changed.
func (r *Reconciler) compare(ctx context.Context, listing checkpoint.Listing, unrecorded []string) error {
	inUse, err := r.claimsInUse(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Kubelet does not tell which claims are in use", "err", err)
		return nil
	}
	p := pass{Reconciler: r, inUse: inUse, shared: map[types.NamespacedName]bool{}, present: map[string]bool{}}
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	seen := map[types.NamespacedName]bool{}
	for _, record := range listing.Records {
		name := nameOf(record.Claim)
		p.shared[name] = p.shared[name] || seen[name]
		seen[name] = true
	}
	var errs []error
	for _, record := range listing.Records {
		errs = append(errs, p.recorded(ctx, record.Claim))
	}
	for _, bad := range listing.Bad {
		if errors.Is(bad.Err, checkpoint.ErrDamaged) {
			errs = append(errs, p.unrecorded(ctx, bad.ClaimUID, "damaged"))
		}
	}
	for _, uid := range unrecorded {
		errs = append(errs, p.unrecorded(ctx, uid, "orphan"))
	}
	for uid := range r.goneSince {
		if !p.present[uid] {
			delete(r.goneSince, uid)
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) claimsInUse(ctx context.Context) (map[types.NamespacedName]struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletPatience)
	defer cancel()
	return r.Pods.ClaimsInUse(ctx)
}

func nameOf(c share.Claim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// recorded looks at a claim that has a sound record.
func (p pass) recorded(ctx context.Context, known share.Claim) error {
	p.present[known.UID] = true
	if _, used := p.inUse[nameOf(known)]; used && !p.shared[nameOf(known)] {
		delete(p.goneSince, known.UID)
		return nil
	}
	_, err := p.find(ctx, known)
	return p.releaseIfGone(ctx, known, err)
}

// unrecorded looks at a claim whose record is damaged or lost. If kubelet lists
// it and the API server has it, it gets a new record; files that belong to no
// claim are removed at once, a damaged record after the grace time.
func (p pass) unrecorded(ctx context.Context, uid, kind string) error {
	p.present[uid] = true
	known := share.Claim{UID: uid}
	keys, err := p.Dirs.Of(uid)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if s, ok := p.Dirs.Holding(key); ok {
			known = s.Claim
		}
	}
	claim, err := p.find(ctx, known)
	_, used := p.inUse[nameOf(known)]
	switch {
	case err == nil && used:
		if _, err := p.Preparer.Prepare(ctx, claim); err != nil {
			return err
		}
		p.Recorder.Healed("damaged")
		klog.FromContext(ctx).Info("Made the record of a claim anew", "claim", known, "claimUID", uid)
		return nil
	case kind == "damaged":
		return p.releaseIfGone(ctx, known, err)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	default:
		return p.restore(ctx, uid, kind)
	}
}

// find gets a claim from the API server: under the name that is known, or among
// those that kubelet lists. The error is NotFound where there is none with the UID.
func (p pass) find(ctx context.Context, known share.Claim) (*resourceapi.ResourceClaim, error) {
	names := map[types.NamespacedName]struct{}{nameOf(known): {}}
	if known.Name == "" {
		names = p.inUse
	}
	for name := range names {
		claim, err := p.Claims.GetClaim(ctx, name)
		switch {
		case err == nil && string(claim.UID) == known.UID:
			return claim, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("look for claim %s: %w", known, err)
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), known.String())
}

// releaseIfGone unprepares a claim that has been away from API server and
// kubelet for the grace time. found is what the search for it gave.
func (p pass) releaseIfGone(ctx context.Context, known share.Claim, found error) error {
	switch {
	case found == nil:
		delete(p.goneSince, known.UID)
		return nil
	case !apierrors.IsNotFound(found):
		return found
	}
	since, ok := p.goneSince[known.UID]
	if !ok {
		p.goneSince[known.UID] = p.Now()
		return nil
	}
	if p.Now().Sub(since) < p.StaleGrace {
		return nil
	}
	klog.FromContext(ctx).Info("Releasing a claim that is gone", "claim", known, "claimUID", known.UID, "goneFor", p.Now().Sub(since))
	if err := p.Preparer.Unprepare(ctx, known); err != nil {
		return err
	}
	delete(p.goneSince, known.UID)
	p.Recorder.Healed("stale")
	return nil
}
