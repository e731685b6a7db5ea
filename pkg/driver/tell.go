// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	published "github.com/tranche-dra/tranche/pkg/slices"
)

// tellListing tells of the first failure of a series, and of its end.
func (p *publisher) tellListing(ctx context.Context, count int, err error) {
	logger := klog.FromContext(ctx)
	switch {
	case err != nil && err.Error() != p.told.list:
		logger.Error(err, "Cannot list cards, what is published stays", "cards", count)
		p.events.Node(reasonListFailed, err.Error())
		p.told.list = err.Error()
	case err == nil && p.told.list != "":
		logger.Info("Cards can be listed again", "cards", count)
		p.told.list = ""
	}
}

// tellSharing tells why cards are published whole, once for each reason.
func (p *publisher) tellSharing(ctx context.Context) {
	why := p.sharing.why
	if why == p.told.notShared {
		return
	}
	p.told.notShared = why
	if why == "" {
		klog.FromContext(ctx).Info("Cards can be shared again", "kubernetes", p.sharing.version)
		return
	}
	klog.FromContext(ctx).Error(nil, "Cards cannot be shared", "why", why)
	p.events.Node(reasonNotShared, why)
}

// tellNotes tells what is new about how cards are published.
func (p *publisher) tellNotes(ctx context.Context, notes []published.Note) {
	texts := make([]string, 0, len(notes))
	for _, n := range notes {
		text := n.String()
		texts = append(texts, text)
		if !slices.Contains(p.told.notes, text) {
			klog.FromContext(ctx).Info("Note on how a card is published", "card", n.Card, "note", n.Message)
			p.events.Node(reasonNote, text)
		}
	}
	p.told.notes = texts
}
