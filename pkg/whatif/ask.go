// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dra/tranche/deviceclasses"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/slices"
)

// ask is one claim, or one pod with its claims, that might come.
type ask struct {
	kind   string
	name   string
	claims []*resourceapi.ResourceClaimSpec
	// pod that uses them; the zero value for a claim by itself.
	pod corev1.PodSpec
	// err is why this cannot be tried.
	err error
}

func (a *ask) String() string { return a.kind + " " + a.name }

// asksOf are the pods of the objects that are on no node yet, and the claims and
// templates that none of them uses. Claims that hold cards already, and pods with
// such claims only, are not asked for again.
func asksOf(o *Objects, known classes) []ask {
	var asks []ask
	used := map[any]bool{}
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Spec.NodeName == "" {
			if ask := o.askOf(pod, known, used); ask.err != nil || len(ask.claims) > 0 {
				asks = append(asks, ask)
			}
		}
	}
	for i := range o.Claims {
		if c := &o.Claims[i]; c.Status.Allocation == nil && !used[&c.Spec] {
			asks = append(asks, ask{kind: "claim", name: name(c.Namespace, c.Name), claims: []*resourceapi.ResourceClaimSpec{&c.Spec}})
		}
	}
	for i := range o.Templates {
		if t := &o.Templates[i]; !used[&t.Spec.Spec] {
			asks = append(asks, ask{kind: "template", name: name(t.Namespace, t.Name), claims: []*resourceapi.ResourceClaimSpec{&t.Spec.Spec}})
		}
	}
	return asks
}

// classSuffix of the names of classes that are always for cards of Tranche.
const classSuffix = ".tranche.dev"

// asker turns claims into demands.
type asker struct {
	ctx     context.Context //nolint:containedctx // CEL wants one; evaluating a selector is bounded by its cost
	cluster *cluster
	classes classes
}

func (a *asker) trial(ask *ask) (trial, error) {
	demand, err := a.demand(ask)
	if err != nil {
		return trial{}, err
	}
	screen, err := a.cluster.screen(ask)
	return trial{ask.name, demand, screen}, err
}

func (a *asker) demand(ask *ask) (placement.Demand, error) {
	var d placement.Demand
	if ask.err != nil {
		return d, ask.err
	}
	for _, spec := range ask.claims {
		for i := range spec.Devices.Requests {
			request := &spec.Devices.Requests[i]
			part, err := a.part(spec, request)
			if err != nil {
				return d, fmt.Errorf("request %s: %w", request.Name, err)
			}
			d.Parts = append(d.Parts, part)
		}
		if len(spec.Devices.Constraints) > 0 {
			return d, errors.New("constraints are not simulated: leave them out to try the rest")
		}
	}
	return d, nil
}

func (a *asker) part(claim *resourceapi.ResourceClaimSpec, request *resourceapi.DeviceRequest) (placement.Part, error) {
	exactly := request.Exactly
	if exactly == nil {
		return placement.Part{}, errors.New("firstAvailable is not simulated: give the alternative to try as exactly")
	}
	class, known := a.classes.byName[exactly.DeviceClassName]
	if !known {
		return placement.Part{}, fmt.Errorf("device class %q does not come with Tranche, and no file has it: kubectl get deviceclasses -o json exports it", exactly.DeviceClassName)
	}
	accepts, err := a.selectors(class.Spec.Selectors, exactly.Selectors)
	if err != nil {
		return placement.Part{}, err
	}
	// What a class of another name selects only the cards can tell.
	if !strings.HasSuffix(class.Name, classSuffix) && !a.cluster.has(accepts) {
		return placement.Part{}, fmt.Errorf("device class %q selects no card of %s in this cluster", class.Name, slices.DriverName)
	}
	if exactly.AllocationMode == resourceapi.DeviceAllocationModeAll {
		return placement.Part{}, errors.New("allocationMode All is not simulated: give a count")
	}
	if exactly.Count < 0 || exactly.Count > resourceapi.AllocationResultsMaxSize {
		return placement.Part{}, fmt.Errorf("count of %d: a claim holds at least 1 and at most %d", exactly.Count, resourceapi.AllocationResultsMaxSize)
	}
	if exactly.AdminAccess != nil && *exactly.AdminAccess {
		return placement.Part{}, errors.New("adminAccess takes nothing of a card: there is nothing to try")
	}
	part := placement.Part{Cards: int(max(exactly.Count, 1)), Accepts: accepts}
	if part.Class, err = claims.ClassAsked(claim, request.Name, class); err != nil {
		return part, err
	}
	if exactly.Capacity == nil || len(exactly.Capacity.Requests) == 0 {
		part.Whole = true
	} else if part.Amount, err = amount(exactly.Capacity.Requests); err != nil {
		return part, err
	}
	if part.Class == share.NoClass && part.Amount.Offline > 0 {
		part.Class = share.Offline
	}
	return part, nil
}

func amount(requests map[resourceapi.QualifiedName]resource.Quantity) (placement.Amount, error) {
	var a placement.Amount
	_, cores := requests[slices.CapacityCores]
	memory, hasMemory := requests[slices.CapacityMemory]
	if !cores || !hasMemory {
		return a, errors.New("a share names both cores and memory")
	}
	for name := range requests {
		switch name {
		case slices.CapacityCores, slices.CapacityOfflineCores, slices.CapacityMemory:
		default:
			return a, fmt.Errorf("%s: a share names %s, %s and %s only", name, slices.CapacityCores, slices.CapacityMemory, slices.CapacityOfflineCores)
		}
	}
	for name, to := range map[resourceapi.QualifiedName]*placement.Milli{slices.CapacityCores: &a.Compute, slices.CapacityOfflineCores: &a.Offline} {
		q, asked := requests[name]
		if !asked {
			continue
		}
		if q.Sign() < 0 || q.CmpInt64(int64(card.WholeCompute)) > 0 {
			return a, fmt.Errorf("%s of %s: 0 to 100 percent of one card is right; for whole cards ask for class %s with count: N",
				name, q.String(), deviceclasses.Card)
		}
		*to = placement.FromPercent(card.Percent(q.Value()))
	}
	if memory.Sign() <= 0 || memory.CmpInt64(maxMemory.Bytes()) > 0 {
		return a, fmt.Errorf("memory of %s: from %s to what the card has is right", memory.String(), slices.MinMemory)
	}
	a.Memory = max(card.CeilMiB(memory.Value()), slices.MinMemory)
	return a, nil
}

// maxMemory is far above what any card has, and far from overflowing.
const maxMemory card.MiB = 1 << 40

// selectors compiles the selectors of class and request into one question.
func (a *asker) selectors(of ...[]resourceapi.DeviceSelector) (func(*placement.Node, int) bool, error) {
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true})
	var programs []dracel.CompilationResult
	for _, selectors := range of {
		for _, s := range selectors {
			if s.CEL == nil {
				continue
			}
			program := compiler.CompileCELExpression(s.CEL.Expression, dracel.Options{})
			if program.Error != nil {
				return nil, fmt.Errorf("selector %q: %w", s.CEL.Expression, program.Error)
			}
			programs = append(programs, program)
		}
	}
	return func(n *placement.Node, index int) bool {
		device := a.cluster.devices[n.Name][index]
		for i := range programs {
			// A selector that fails, such as by an attribute that the card lacks, fails
			// the pod in a real scheduler; here the card is of another kind.
			matches, _, err := programs[i].DeviceMatches(a.ctx, dracel.Device{
				Driver: slices.DriverName, Attributes: device.Attributes, Capacity: device.Capacity,
				AllowMultipleAllocations: device.AllowMultipleAllocations,
			})
			if err != nil || !matches {
				return false
			}
		}
		return true
	}, nil
}
