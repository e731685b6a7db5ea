// SPDX-License-Identifier: Apache-2.0

package prepare

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
		p.refused.forget(record.Claim.UID)
		return 0
	}
	ceiling, err := v1alpha1.CeilingOfLabel(w.value, record.Shares)
	if err != nil {
		if p.refused.isNew(record.Claim.UID, err.Error()) {
			p.Report.CeilingRefused(ctx, record.Claim, err)
		}
		return record.BurstCeiling
	}
	p.refused.forget(record.Claim.UID)
	return ceiling
}

// refusals are why ceilings were refused, by claim. A label is looked at again whenever anything
// of its claim changes, such as the status that is written of each of its devices, and told of once.
type refusals struct {
	mu  sync.Mutex
	why map[string]string // guarded by mu
}

// isNew notes why a ceiling of the claim is refused, and tells whether that is news.
func (r *refusals) isNew(uid, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why[uid] == why {
		return false
	}
	if r.why == nil {
		r.why = map[string]string{}
	}
	r.why[uid] = why
	return true
}

func (r *refusals) forget(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.why, uid)
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
	p.Report.CeilingChanged(ctx, record.Claim, before, record.BurstCeiling)
	return true, nil
}
