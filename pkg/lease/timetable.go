// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"slices"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Turn is when a share may launch, counted from the beginning of each period.
type Turn struct {
	Start, Length time.Duration
}

// Timetable divides time among the shares of each card where nobody decides: a turn
// for each in every period, none of them at the same time as another of the card.
// A turn is the share's percent of the period; shares without one, and offline
// ones, divide what is left, or a twentieth where nothing is.
func Timetable(tenants []Tenant, period time.Duration) map[share.Key]Turn {
	cards := map[card.UUID][]tenant{}
	for _, spec := range tenants {
		var t tenant
		t.put(spec)
		cards[t.Card] = append(cards[t.Card], t)
	}
	turns := make(map[share.Key]Turn, len(tenants))
	for _, all := range cards {
		slices.SortFunc(all, func(a, b tenant) int { return byKey(&a, &b) })
		divide(all, period, turns)
	}
	return turns
}

// alone is what is left at least to those without a percent of their own.
const alone = 0.05

func divide(tenants []tenant, period time.Duration, turns map[share.Key]Turn) {
	var own, weights float64
	for i := range tenants {
		if part := tenants[i].percent(); part > 0 {
			own += part
		} else {
			weights += tenants[i].weightOfRest()
		}
	}
	most := 1.0
	if weights > 0 {
		most = 1 - alone
	}
	scale := 1.0
	if own > most {
		scale = most / own
	}
	rest := 1 - own*scale
	var start time.Duration
	for i := range tenants {
		t := &tenants[i]
		part := t.percent() * scale
		if part == 0 {
			part = rest * t.weightOfRest() / weights
		}
		length := min(time.Duration(part*float64(period)), period-start)
		turns[t.Key] = Turn{Start: start, Length: length}
		start += length
	}
}

// percent of its own that the share has in the time table, as a part.
func (t *tenant) percent() float64 {
	if t.lower || t.Policy == share.BestEffort {
		return 0
	}
	return fraction(t.Limits.Cores)
}

// weightOfRest of a share without a percent of its own.
func (t *tenant) weightOfRest() float64 {
	if t.lower {
		return max(1, fraction(t.Limits.OfflineCores)*100)
	}
	return 1
}
