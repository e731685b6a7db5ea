// SPDX-License-Identifier: Apache-2.0

package prepare

import (
	"context"
	"errors"
	"fmt"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
)

// Restore brings the files of one claim in line with its record: kubelet does
// not ask again when a container restarts, so what was lost or belongs to an
// earlier boot is written again here. A claim without a record
// loses whatever it still has on the node; a damaged record is set aside and its
// files stay, for its containers may be running. Only after a reboot does it wait
// for the arbiter, as Prepare does: of a claim that was served once, files are
// mended whether or not the arbiter is away at the moment. It returns whether
// anything had to be changed.
func (p *Preparer) Restore(ctx context.Context, uid string) (healed bool, err error) {
	unlock, err := p.Locks.Claim(ctx, uid)
	if err != nil {
		return false, fmt.Errorf("restore claim with uid %s: %w", uid, err)
	}
	defer unlock()
	record, found, err := p.Records.Read(uid)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged):
		return true, p.setAside(ctx, uid, err)
	case errors.Is(err, checkpoint.ErrNewer):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("restore claim with uid %s: %w", uid, err)
	case !found:
		if aside, err := p.Records.IsSetAside(uid); err != nil || aside {
			return false, err
		}
		return true, p.sweep(uid)
	case record.Phase == checkpoint.Unpreparing:
		return true, p.sweep(uid)
	case record.Phase == checkpoint.Preparing && record.BootID == p.BootID:
		// Kubelet tries again, or takes it back.
		return false, nil
	}
	// After a reboot nothing is as it was: the record says so until it is done.
	rebooted := record.BootID != p.BootID
	if rebooted {
		record.Phase, record.BootID = checkpoint.Preparing, p.BootID
		if _, err := p.Records.Write(record); err != nil {
			return false, err
		}
	}
	changed, err := p.finish(ctx, record, rebooted)
	if err != nil {
		return changed, fmt.Errorf("restore claim %s: %w", record.Claim, err)
	}
	return changed || rebooted, nil
}
