// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Capacity is what one card offers to shares.
type Capacity struct {
	Cores, OfflineCores card.Percent
	Memory              card.MiB
	Slots               int
}

// CapacityOf is the capacity of a healthy card that takes at most slots shares.
func CapacityOf(c card.Card, slots int) Capacity {
	return Capacity{Cores: card.WholeCompute, OfflineCores: card.WholeCompute, Memory: c.Memory, Slots: slots}
}

// OverCommitError says that a share does not fit beside those that already hold
// parts of its card. The scheduler keeps this from happening; the node checks
// once more because a claim can be force-deleted while its pod still runs.
type OverCommitError struct {
	Want Share
	// What is short ("memory"), and the amounts in its unit.
	What                   string
	Asked, Held, Available int64
	Unit                   string
	Holders                []Claim
}

func (e *OverCommitError) Error() string {
	holders := make([]string, 0, len(e.Holders))
	for _, h := range e.Holders {
		holders = append(holders, fmt.Sprintf("%s (uid %s)", h, h.UID))
	}
	remedy := "delete a holder or wait until it ends"
	if e.ByItself() {
		remedy = "these are shares of the same claim, which cannot be on one card: delete the pod and its claim to have it placed again"
	}
	return fmt.Sprintf("claim %s, request %s: card %s has %d%s of %s, %d%s are held by %s, and %d%s are asked for: %s",
		e.Want.Claim, e.Want.Request, e.Want.Card, e.Available, e.Unit, e.What, e.Held, e.Unit,
		strings.Join(holders, ", "), e.Asked, e.Unit, remedy)
}

// ByItself tells whether it is the claim's own shares that the share does not fit
// beside: no waiting makes room then.
func (e *OverCommitError) ByItself() bool {
	return len(e.Holders) > 0 && !slices.ContainsFunc(e.Holders, func(h Claim) bool { return h != e.Want.Claim })
}

// Fit checks that want fits on its card beside held, the shares of all other
// claims on any card. Shares of want's own claim may be among held: they count
// like any other, but the same key is never counted twice. The error is an
// *OverCommitError that names the holders.
func Fit(total Capacity, held []Share, want Share) error {
	var sum Limits
	count := 0
	var holders []Claim
	for _, s := range held {
		if s.Card != want.Card || s.Key() == want.Key() {
			continue
		}
		count++
		sum.Cores += s.Limits.Cores
		sum.OfflineCores += s.Limits.OfflineCores
		sum.Memory += s.Limits.Memory
		if !slices.Contains(holders, s.Claim) {
			holders = append(holders, s.Claim)
		}
		// A whole card has no room beside it even where its memory is unknown.
		if s.Whole || want.Whole {
			return &OverCommitError{
				Want: want, What: "whole cards", Asked: 1, Held: 1, Available: 1, Holders: holders,
			}
		}
	}
	if want.Whole {
		return nil
	}
	for _, l := range []struct {
		what, unit             string
		asked, held, available int64
	}{
		{"memory", " MiB", int64(want.Limits.Memory), int64(sum.Memory), int64(total.Memory)},
		{"cores", " %", int64(want.Limits.Cores), int64(sum.Cores), int64(total.Cores)},
		{"offlineCores", " %", int64(want.Limits.OfflineCores), int64(sum.OfflineCores), int64(total.OfflineCores)},
		{"slots", "", 1, int64(count), int64(total.Slots)},
	} {
		if l.asked > 0 && l.held+l.asked > l.available {
			return &OverCommitError{
				Want: want, What: l.what, Unit: l.unit, Asked: l.asked, Held: l.held, Available: l.available, Holders: holders,
			}
		}
	}
	return nil
}
