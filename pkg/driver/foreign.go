// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dra/tranche/pkg/card"
)

// servedByOthers finds the cards that other device plugins hand out, with the
// resource under which they do. Such plugins name a device by the card's UUID,
// or by the UUID with something behind it for the replicas of a shared card.
func servedByOthers(cards []card.Card, devices map[string][]string) map[card.UUID]string {
	out := map[card.UUID]string{}
	for _, resource := range slices.Sorted(maps.Keys(devices)) {
		for _, id := range devices[resource] {
			for _, c := range cards {
				if _, found := out[c.UUID]; !found && c.UUID != "" && strings.HasPrefix(id, string(c.UUID)) {
					out[c.UUID] = resource
				}
			}
		}
	}
	return out
}

// without leaves out the cards that others serve.
func without(cards []card.Card, others map[card.UUID]string) []card.Card {
	return slices.DeleteFunc(slices.Clone(cards), func(c card.Card) bool {
		_, found := others[c.UUID]
		return found
	})
}
