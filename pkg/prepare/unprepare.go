// SPDX-License-Identifier: Apache-2.0

package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Unprepare takes away all that the claim has on this node. Only the UID
// counts: the claim may be gone, and its name in use by another. A claim that
// was never prepared here is success. A damaged record, or one of a newer
// driver, is no obstacle: everything is found by the claim's UID.
func (p *Preparer) Unprepare(ctx context.Context, claim share.Claim) error {
	unlock, err := p.Locks.Claim(ctx, claim.UID)
	if err != nil {
		return classify(fmt.Errorf("unprepare claim %s: %w", claim, err))
	}
	defer unlock()
	if err := p.unprepare(ctx, claim.UID); err != nil {
		return classify(fmt.Errorf("unprepare claim %s: %w", claim, err))
	}
	return nil
}

func (p *Preparer) unprepare(ctx context.Context, uid string) error {
	record, found, err := p.Records.Read(uid)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged), errors.Is(err, checkpoint.ErrNewer), errors.Is(err, checkpoint.ErrUnreadable):
		klog.FromContext(ctx).Info("Unpreparing a claim without its record", "claimUID", uid, "err", err)
	case err != nil:
		return err
	case found && record.Phase != checkpoint.Unpreparing:
		record.Phase = checkpoint.Unpreparing
		if _, err := p.Records.Write(record); isFull(err) {
			// A full disk must not keep pods from ending: removing makes room. A
			// crash in between leaves a claim that is restored, and kubelet asks again.
			klog.FromContext(ctx).Info("Unpreparing a claim without noting it first", "claimUID", uid, "err", err)
		} else if err != nil {
			return err
		}
	}
	return p.sweep(uid)
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// sweep removes everything that belongs to a claim, its record last. The
// caller holds the claim's lock.
func (p *Preparer) sweep(uid string) error {
	if err := p.Specs.Remove(uid); err != nil {
		return err
	}
	if err := p.removeDirs(uid, nil); err != nil {
		return err
	}
	if err := p.Records.Remove(uid); err != nil {
		return err
	}
	p.room.remove(uid)
	p.refused.forget(uid)
	return nil
}

func (p *Preparer) removeDirs(uid string, keep []share.Key) error {
	keys, err := p.Dirs.Of(uid)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !slices.Contains(keep, key) {
			if err := p.Dirs.Remove(key); err != nil {
				return err
			}
		}
	}
	return nil
}
