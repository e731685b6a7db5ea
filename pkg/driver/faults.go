// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
)

// tellFaults says on the node which cards became faulty and which recovered.
// The pods that a fault evicts are told by Kubernetes that they are, and by
// nobody why.
func (p *publisher) tellFaults(ctx context.Context, cards []card.Card) {
	logger := klog.FromContext(ctx)
	now := make(map[card.UUID]string, len(cards))
	for _, c := range cards {
		message, ok := faultsOf(c)
		if !ok {
			continue
		}
		now[c.UUID] = message
		if p.told.faults[c.UUID] != message {
			logger.Info("Card is faulty", "card", c.UUID, "index", c.Index, "faults", message)
			p.events.Node(reasonFaulty, fmt.Sprintf("card %s (index %d) %s", c.UUID, c.Index, message))
		}
	}
	for _, c := range cards {
		if _, was := p.told.faults[c.UUID]; was && c.Healthy() {
			logger.Info("Card has recovered", "card", c.UUID, "index", c.Index)
			p.events.Node(reasonRecovered, fmt.Sprintf("card %s (index %d) is healthy again and takes pods", c.UUID, c.Index))
		}
	}
	p.told.faults = now
}

// faultsOf says what is wrong with a card and what follows for its pods.
func faultsOf(c card.Card) (string, bool) {
	if c.Healthy() {
		return "", false
	}
	words := make([]string, 0, len(c.Faults))
	follows := "no new pod is placed on it"
	for _, f := range c.Faults {
		words = append(words, strings.TrimSuffix(f.Kind+": "+f.Message, ": "))
		if f.Evict {
			follows = "the pods on it are stopped"
		}
	}
	return fmt.Sprintf("is faulty (%s): %s until it has recovered", strings.Join(words, "; "), follows), true
}
