// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	stdslices "slices"
	"strings"
	"sync/atomic"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/slices"
)

// Reasons of events on the node.
const (
	reasonListFailed      = "CardsUnreadable"
	reasonNotShared       = "CardsNotShared"
	reasonFeatureDisabled = "FeatureDisabled"
	reasonForeign         = "CardServedByOthers"
	reasonNote            = "CardPublishedDifferently"
	reasonRefused         = "CardsRefused"
	reasonFaulty          = "CardFaulty"
	reasonRecovered       = "CardRecovered"
)

// pluginsTimeout is how long kubelet may take to list other plugins' devices.
const pluginsTimeout = 5 * time.Second

// publishChanges and publishAgain say how to treat slices that did not change.
type how bool

const (
	publishChanges how = false
	publishAgain   how = true
)

// publisher turns what is known of cards into slices. Only run touches the
// fields that are not atomic.
type publisher struct {
	config     Config
	inventory  *Inventory
	plugins    DevicePlugins
	events     Events
	recorder   Recorder
	controller *sliceController
	sharing    sharing

	// wake has room for one request; again says that one of them was publishAgain.
	wake    chan struct{}
	again   atomic.Bool
	dropped atomic.Bool
	// published is set once the API server has our slices.
	published atomic.Bool

	last   *resourceslice.DriverResources
	others map[card.UUID]string
	told   told
}

// told is what people know already.
type told struct {
	list, plugins, notShared string
	notes                    []string
	faults                   map[card.UUID]string
}

func newPublisher(config Config, d Dependencies) *publisher {
	p := &publisher{
		config: config, inventory: d.Inventory, plugins: d.Plugins, events: d.Events, recorder: d.Recorder,
		sharing: sharing{server: discovery.ToServerVersionInterfaceWithContext(d.Client.Discovery()), force: config.ForceSharing},
		wake:    make(chan struct{}, 1),
	}
	p.controller = &sliceController{
		client: d.Client, nodeName: config.NodeName, nodeUID: config.NodeUID, timing: config.Timing,
		synced: p.synced, failed: p.failed,
	}
	return p
}

// request asks for a pass soon. It never blocks.
func (p *publisher) request(h how) {
	if h == publishAgain {
		p.again.Store(true)
	}
	select {
	case p.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	defer p.controller.stop()
	retry := p.config.Timing.backoff()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		if p.pass(ctx) {
			retry = p.config.Timing.backoff()
			timer.Reset(p.config.Timing.Relist)
		} else {
			timer.Reset(retry.Step())
		}
	}
}

// pass looks at everything once and updates what is wanted. It returns false
// when it should be repeated soon.
func (p *publisher) pass(ctx context.Context) bool {
	again := p.again.Swap(false)
	cards, listErr := p.inventory.Refresh(ctx)
	if ctx.Err() != nil {
		return false // nothing is wrong with the cards
	}
	p.recorder.CardsListed(cards, listErr)
	p.tellListing(ctx, len(cards), listErr)
	if !p.inventory.listed() {
		// To publish none would withdraw those of the instance before, whose
		// pods run on, and make this one ready, so that an update went on.
		return p.repeat(again)
	}
	p.tellFaults(ctx, cards)
	p.findOthers(ctx, cards)
	if p.dropped.Swap(false) {
		p.sharing.fieldsDropped()
	}
	shared, err := p.sharing.decide(ctx)
	if err != nil {
		logFailure(ctx, err, "decide whether cards can be shared")
		return p.repeat(again)
	}
	p.tellSharing(ctx)
	visible := without(cards, p.others)
	wanted, notes := slices.Build(visible, slices.Options{NodeName: p.config.NodeName, Slots: p.config.Slots, Shareable: shared})
	p.tellNotes(ctx, notes)
	if changed := p.last == nil || !apiequality.Semantic.DeepEqual(*p.last, wanted); changed || again {
		klog.FromContext(ctx).Info("Publishing cards", "cards", len(visible), "shared", shared, "changed", changed)
		p.last = &wanted
		p.recorder.CardsPublished(len(visible))
		p.controller.update(ctx, &wanted)
	}
	return listErr == nil
}

// repeat ends a pass that could not publish; what was asked of it is asked of
// the next.
func (p *publisher) repeat(again bool) bool {
	if again {
		p.again.Store(true)
	}
	return false
}

// findOthers looks for device plugins that serve our cards. When kubelet cannot
// tell, what it told last stays.
func (p *publisher) findOthers(ctx context.Context, cards []card.Card) {
	logger := klog.FromContext(ctx)
	limited, cancel := context.WithTimeout(ctx, pluginsTimeout)
	defer cancel()
	devices, err := p.plugins.Allocatable(limited)
	if err != nil {
		if p.told.plugins == "" {
			logger.Info("Cannot tell whether other device plugins serve these cards", "err", err)
		}
		p.told.plugins = err.Error()
		return
	}
	p.told.plugins = ""
	others := servedByOthers(cards, devices)
	for _, c := range cards {
		resource, found := others[c.UUID]
		before, known := p.others[c.UUID]
		switch {
		case found && resource != before:
			message := fmt.Sprintf("card %s is not published: another device plugin serves it as %s; remove that plugin from this node, or keep tranche-node off it", c.UUID, resource)
			logger.Info("Card is served by another device plugin", "card", c.UUID, "resource", resource)
			p.events.Node(reasonForeign, message)
		case known && !found:
			logger.Info("Card is not served by another device plugin any more", "card", c.UUID, "resource", before)
		}
	}
	p.others = others
}

// synced is called by the controller.
func (p *publisher) synced() {
	p.published.Store(true)
	p.recorder.PublishDone(nil)
}

// failed is called by the controller with every error. All of them are tried
// again, some with other slices.
func (p *publisher) failed(ctx context.Context, err error, msg string) {
	p.recorder.PublishDone(err)
	var fields *resourceslice.DroppedFieldsError
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &fields):
		p.fieldsDropped(ctx, fields)
	case apierrors.IsInvalid(err):
		logFailure(ctx, err, msg)
		p.events.Node(reasonRefused, "the API server refuses the cards of this node: "+err.Error())
	default:
		logFailure(ctx, err, msg)
	}
}

// fieldsDropped takes the news that the API server stored less than it was
// given. Without the fields of sharing a card would be one device that one claim
// takes with amounts that mean nothing: cards are published whole then.
func (p *publisher) fieldsDropped(ctx context.Context, err *resourceslice.DroppedFieldsError) {
	features := err.DisabledFeatures()
	if stdslices.Contains(features, featureSharing) {
		p.dropped.Store(true)
		p.request(publishAgain)
		return
	}
	klog.FromContext(ctx).Error(err, "The API server dropped fields of the slices", "features", features)
	p.events.Node(reasonFeatureDisabled, fmt.Sprintf(
		"the API server does not store all that is known of this node's cards; enable the feature gates %s: without DRADeviceTaints, cards with faults still take pods",
		strings.Join(features, ", ")))
}
