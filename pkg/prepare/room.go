// SPDX-License-Identifier: Apache-2.0

package prepare

import (
	"context"
	"fmt"
	"sync"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
)

// room remembers what the claims of this node hold, so that not every
// reservation has to look at every record while others wait. It may know of
// claims that are gone, and never misses one that is there: before a claim is
// refused, the records are read.
type room struct {
	mu     sync.Mutex
	mark   checkpoint.Mark          // guarded by mu; zero: nothing is known
	claims map[string][]share.Share // guarded by mu; by UID
}

// at is what was known under the mark, without one claim.
func (r *room) at(mark checkpoint.Mark, exceptUID string) (held []share.Share, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mark == (checkpoint.Mark{}) || mark != r.mark {
		return nil, false
	}
	for uid, shares := range r.claims {
		if uid != exceptUID {
			held = append(held, shares...)
		}
	}
	return held, true
}

// replace forgets everything and remembers what was read.
func (r *room) replace(claims map[string][]share.Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mark, r.claims = checkpoint.Mark{}, claims
}

// add remembers one more claim. All of it holds under the mark.
func (r *room) add(mark checkpoint.Mark, uid string, shares []share.Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mark, r.claims[uid] = mark, shares
}

func (r *room) remove(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.claims, uid)
}

// reserve publishes the record if its shares fit. Nobody else decides about
// room meanwhile, so nothing in here waits for the disk.
func (p *Preparer) reserve(ctx context.Context, claim share.Claim, shares []share.Share, staged durable.Staged) error {
	reservation, err := p.Locks.Reserve(ctx)
	if err != nil {
		return fmt.Errorf("prepare claim %s: %w", claim, err)
	}
	defer reservation.Unlock()
	mark, err := reservation.Mark()
	if err != nil {
		return fmt.Errorf("prepare claim %s: %w", claim, err)
	}
	held, known := p.room.at(mark, claim.UID)
	if !known || p.fit(held, shares) != nil {
		if held, err = p.readRoom(claim.UID); err != nil {
			return fmt.Errorf("prepare claim %s: %w", claim, err)
		}
		if err := p.fit(held, shares); err != nil {
			return err
		}
	}
	if mark, err = reservation.Change(); err != nil {
		return fmt.Errorf("prepare claim %s: %w", claim, err)
	}
	if err := staged.Publish(); err != nil {
		return err
	}
	p.room.add(mark, claim.UID, shares)
	return nil
}

// fit checks that the shares fit beside those held, and beside each other.
func (p *Preparer) fit(held, shares []share.Share) error {
	for _, s := range shares {
		c, ok := p.Node.Card(s.Device)
		if !ok {
			return &claims.Error{Claim: s.Claim, Request: s.Request, Device: s.Device, Err: claims.ErrNoSuchCard}
		}
		if err := share.Fit(share.CapacityOf(c, p.Slots), held, s); err != nil {
			return err
		}
		held = append(held, s)
	}
	return nil
}

// readRoom reads and remembers what all claims hold: by their records and,
// where a record cannot be read, by the files that its containers still use. It
// returns the shares of all but one. The caller holds the reservation.
func (p *Preparer) readRoom(exceptUID string) ([]share.Share, error) {
	listing, err := p.Records.List()
	if err != nil {
		return nil, err
	}
	byClaim := make(map[string][]share.Share, len(listing.Records)+1)
	for _, r := range listing.Records {
		byClaim[r.Claim.UID] = r.Shares
	}
	for _, bad := range listing.Bad {
		if byClaim[bad.ClaimUID], err = p.sharesOnDisk(bad.ClaimUID); err != nil {
			return nil, err
		}
	}
	var held []share.Share
	for uid, shares := range byClaim {
		if uid != exceptUID {
			held = append(held, shares...)
		}
	}
	p.room.replace(byClaim)
	return held, nil
}

// sharesOnDisk reads what a claim without a usable record holds, as far as its
// files tell. One that tells nothing is passed over: it must not stop every
// other claim.
func (p *Preparer) sharesOnDisk(uid string) ([]share.Share, error) {
	keys, err := p.Dirs.Of(uid)
	if err != nil {
		return nil, err
	}
	var shares []share.Share
	for _, key := range keys {
		if s, ok := p.Dirs.Holding(key); ok {
			shares = append(shares, s)
		}
	}
	return shares, nil
}
