// SPDX-License-Identifier: Apache-2.0

package prepare

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
)

// wish is what the owner of a claim says by its label, if anything.
type wish struct {
	value string
	said  bool
}

func wishOf(labels map[string]string) wish {
	value, said := labels[v1alpha1.LabelBurstCeiling]
	return wish{value, said}
}

// ceiling is what the record's shares get for a wish: one that cannot be fulfilled
// changes nothing and is told.
func (p *Preparer) ceiling(ctx context.Context, record checkpoint.Record, w wish) card.Percent {
	if !w.said {
		return 0
	}
	ceiling, err := v1alpha1.CeilingOfLabel(w.value, record.Shares)
	if err != nil {
		p.Report.CeilingRefused(ctx, record.Claim, err)
		return record.BurstCeiling
	}
	return ceiling
}

// Adjust gives the running shares of a claim the ceiling that its labels ask for,
// or their own where they ask for none. It returns false where the claim is not
// prepared here, or nothing can be told of it: one whose record is damaged is
// prepared anew, with its labels. Who holds the shares goes on running: only share.json changes,
// and the arbiter follows it. The record changes first, so that what could not be
// written is written by the next Restore.
func (p *Preparer) Adjust(ctx context.Context, uid string, labels map[string]string) (prepared bool, err error) {
	if _, found, err := p.Records.Read(uid); err == nil && !found {
		return false, nil // most claims of a cluster are elsewhere
	}
	unlock, err := p.Locks.Claim(ctx, uid)
	if err != nil {
		return false, fmt.Errorf("adjust claim with uid %s: %w", uid, err)
	}
	defer unlock()
	record, found, err := p.Records.Read(uid)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged), errors.Is(err, checkpoint.ErrNewer):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("adjust claim with uid %s: %w", uid, err)
	case !found || record.Phase != checkpoint.Prepared:
		return false, nil
	}
	before := record.BurstCeiling
	if record.BurstCeiling = p.ceiling(ctx, record, wishOf(labels)); record.BurstCeiling == before {
		return true, nil
	}
	if _, err := p.Records.Write(record); err != nil {
		return true, err
	}
	for _, s := range record.InForce() {
		if _, _, err := p.writeDir(s); err != nil {
			return true, fmt.Errorf("adjust claim %s: %w", record.Claim, err)
		}
	}
	klog.FromContext(ctx).Info("Changed the burst ceiling of a claim", "claim", record.Claim, "uid", uid, "from", before, "to", record.BurstCeiling)
	return true, nil
}
