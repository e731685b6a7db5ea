// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/tranche-dra/tranche/pkg/placement"
)

// selection is what a request asks of a device: the expressions of its class and
// its own, all of which must be true. The key tells selections apart.
type selection struct {
	key         string
	expressions []string
}

func newSelection(class *resourceapi.DeviceClass, own []resourceapi.DeviceSelector) selection {
	var s selection
	for _, selectors := range [][]resourceapi.DeviceSelector{class.Spec.Selectors, own} {
		for _, selector := range selectors {
			if selector.CEL != nil {
				s.expressions = append(s.expressions, selector.CEL.Expression)
			}
		}
	}
	s.key = strings.Join(s.expressions, "\x00")
	return s
}

// match is what selections say of the devices of one node, or of those that are
// not of one node.
type match struct {
	accepted []bool
	// all and any sum up accepted.
	all, any bool
	// err is that of the first device for which an expression has no answer, which
	// for the allocator is the end of the attempt.
	err    error
	device string
}

// matcher evaluates expressions.
type matcher struct{ compiled *cel.Cache }

// compiledExpressions is how many different expressions are kept compiled.
const compiledExpressions = 100

func newMatcher(features feature.Features) *matcher {
	return &matcher{compiled: cel.NewCache(compiledExpressions, cel.Features{
		EnableConsumableCapacity: features.EnableDRAConsumableCapacity,
		EnableListTypeAttributes: features.EnableDRAListTypeAttributes,
	})}
}

func (m *matcher) accepts(ctx context.Context, s selection, driver string, d *resourceapi.Device) (bool, error) {
	input := cel.Device{
		Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations,
		Attributes: d.Attributes, Capacity: d.Capacity,
	}
	for _, expression := range s.expressions {
		program := m.compiled.GetOrCompile(expression)
		if program.Error != nil {
			return false, program.Error
		}
		if ok, _, err := program.DeviceMatches(ctx, input); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// verdicts remembers matches by the key of the selection.
type verdicts struct {
	mutex sync.Mutex
	known map[string]*match
}

// remembered is how many selections are remembered for one node: those of the
// classes, and what people write into claims.
const remembered = 64

func (v *verdicts) of(s selection, find func() *match) *match {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if found, ok := v.known[s.key]; ok {
		return found
	}
	if v.known == nil || len(v.known) >= remembered {
		v.known = make(map[string]*match)
	}
	found := find()
	v.known[s.key] = found
	return found
}

// matching tells which of the node's cards the selection accepts.
func (h *host) matching(ctx context.Context, m *matcher, s selection) *match {
	return h.known.of(s, func() *match {
		found := &match{accepted: make([]bool, len(h.cards)), all: true}
		for i := range h.cards {
			id := h.cards[i].id
			ok, err := m.accepts(ctx, s, id.Driver.String(), h.cards[i].device)
			found.note(i, ok, err, id.Device.String())
		}
		return found
	})
}

func (f *match) note(i int, ok bool, err error, device string) {
	f.accepted[i] = ok
	f.all = f.all && ok
	f.any = f.any || ok
	if err != nil && f.err == nil {
		f.err, f.device = err, device
	}
}

// accepts is what placement asks, nil where every card will do.
func (f *match) accepts() func(*placement.Node, int) bool {
	if f.all {
		return nil
	}
	return func(_ *placement.Node, i int) bool { return f.accepted[i] }
}

// foreign are devices that no card stands for.
type foreign struct {
	drivers []string
	devices []*resourceapi.Device
	known   verdicts
}

func newForeign(of []*resourceapi.ResourceSlice) *foreign {
	f := &foreign{}
	for _, s := range of {
		for i := range s.Spec.Devices {
			f.drivers = append(f.drivers, s.Spec.Driver)
			f.devices = append(f.devices, &s.Spec.Devices[i])
		}
	}
	return f
}

// matching tells which of the devices the selection accepts.
func (f *foreign) matching(ctx context.Context, m *matcher, s selection) *match {
	if len(f.devices) == 0 {
		return &match{}
	}
	return f.known.of(s, func() *match {
		found := &match{accepted: make([]bool, len(f.devices))}
		for i, d := range f.devices {
			ok, err := m.accepts(ctx, s, f.drivers[i], d)
			found.note(i, ok, err, d.Name)
		}
		return found
	})
}
