// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/listing"
)

const (
	// maxWait bounds a call that waits for events: it cannot be cancelled.
	maxWait = 500 * time.Millisecond

	wantedEvents = gonvml.EventTypeXidCriticalError | gonvml.EventTypeDoubleBitEccError
)

// Watch calls notify once when it has begun to watch, so that nothing is missed
// between an earlier listing and now, and then whenever a listing would differ.
// Error events of the cards are seen at once, and everything else, recovery
// among it, by a query at intervals.
func (s *Source) Watch(ctx context.Context, notify func(card.Event)) error {
	logger := klog.FromContext(ctx).WithName("cards")
	events := s.subscribe(logger)
	defer func() { s.unsubscribe(events) }()
	last := listing.Take(ctx, s)
	notify(card.Event{Reason: listing.Watching})
	next := time.Now().Add(s.opts.PollInterval)
	for ctx.Err() == nil {
		seen := quiet
		if events != nil {
			seen = s.wait(logger, events, min(time.Until(next), maxWait))
		} else {
			pause(ctx, time.Until(next))
		}
		if seen == quiet && time.Now().Before(next) {
			continue
		}
		if seen == ended || seen == failed {
			s.unsubscribe(events)
			events = nil
		}
		now := listing.Take(ctx, s)
		if ctx.Err() != nil {
			break
		}
		for _, event := range now.Since(last) {
			logger.V(2).Info("NVIDIA cards changed", "reason", event.Reason, "card", event.Card)
			notify(event)
		}
		last = now
		next = time.Now().Add(s.opts.PollInterval)
		if events == nil && seen != failed { // a failure could come again at once
			events = s.subscribe(logger)
		}
	}
	return nil
}

// pause waits for the duration or the end of the context.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// subscription is an event set of one session.
type subscription struct {
	set        gonvml.EventSet
	generation int
}

// subscribe gives nil where no card reports events: querying is left then.
func (s *Source) subscribe(logger klog.Logger) *subscription {
	sub := &subscription{}
	generation, err := s.call(func(lib gonvml.Interface) error {
		set, ret := lib.EventSetCreate()
		if ret != gonvml.SUCCESS {
			return ret
		}
		if registered := register(logger, lib, set); registered == 0 {
			_ = set.Free()
			return errNoEvents
		}
		sub.set = set
		return nil
	})
	if err != nil {
		logger.V(4).Info("No events of NVIDIA cards, querying at intervals", "reason", err.Error(), "interval", s.opts.PollInterval)
		return nil
	}
	sub.generation = generation
	return sub
}

// register asks every card for its error events and counts those that agree.
func register(logger klog.Logger, lib gonvml.Interface, set gonvml.EventSet) (registered int) {
	count, _ := lib.DeviceGetCount()
	for i := range count {
		device, ret := lib.DeviceGetHandleByIndex(i)
		if ret != gonvml.SUCCESS {
			continue
		}
		supported, ret := device.GetSupportedEventTypes()
		if ret == gonvml.SUCCESS {
			ret = gonvml.ERROR_NOT_SUPPORTED
			if supported &= wantedEvents; supported != 0 {
				ret = device.RegisterEvents(supported, set)
			}
		}
		if ret != gonvml.SUCCESS {
			logger.V(2).Info("A card reports no events and is queried at intervals only", "index", i, "reason", ret.Error())
			continue
		}
		registered++
	}
	return registered
}

func (s *Source) unsubscribe(sub *subscription) {
	if sub == nil {
		return
	}
	s.session.RLock()
	defer s.session.RUnlock()
	// The end of a session frees its event sets.
	if s.started && s.generation == sub.generation {
		_ = sub.set.Free()
	}
}

// outcome of waiting for events.
type outcome int

const (
	quiet outcome = iota
	// happened: the cards should be queried now.
	happened
	// ended: so did the session that the subscription was made in.
	ended
	failed
)

func (s *Source) wait(logger klog.Logger, sub *subscription, d time.Duration) outcome {
	s.session.RLock()
	defer s.session.RUnlock()
	if !s.started || s.generation != sub.generation {
		return ended
	}
	data, ret := sub.set.Wait(uint32(max(d, time.Millisecond) / time.Millisecond)) //nolint:gosec // at most maxWait
	switch ret {
	case gonvml.SUCCESS:
		return s.note(logger, data)
	case gonvml.ERROR_TIMEOUT:
		return quiet
	default:
		// A card was lost, or the driver ends: a query will tell.
		logger.Error(ret, "Waiting for events of NVIDIA cards, querying them instead")
		return failed
	}
}

// note remembers an event, and tells whether something happened to a card.
// Applications can cause floods of errors: those are not worth a query each.
func (s *Source) note(logger klog.Logger, data gonvml.EventData) outcome {
	xid := data.EventData
	switch data.EventType {
	case gonvml.EventTypeDoubleBitEccError:
		xid = xidDoubleBitECC
	case gonvml.EventTypeXidCriticalError:
	default:
		return quiet
	}
	uuid, ret := data.Device.GetUUID()
	if ret != gonvml.SUCCESS {
		logger.Error(ret, "A card that cannot be named reported an error", "xid", xid)
		return happened
	}
	logger = logger.WithValues("card", uuid, "xid", xid)
	switch classify(xid) {
	case xidOfApplication:
		logger.V(2).Info("An application's error on a card")
		return quiet
	case xidNotice:
		logger.V(2).Info("A notice of a card")
		return happened
	default:
		logger.Info("A card reported a hardware error", "message", xidMessage(xid))
		s.remember(card.UUID(uuid), xid)
		return happened
	}
}
