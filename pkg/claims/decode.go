// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Capacities by the names under which they are published.
const (
	Cores        resourceapi.QualifiedName = "cores"
	OfflineCores resourceapi.QualifiedName = "offlineCores"
	Memory       resourceapi.QualifiedName = "memory"
)

// Node is what decoding needs to know of the node.
type Node struct {
	// Driver's name in results and configurations; results of others are skipped.
	Driver string
	// Pool is the name of this node's pool.
	Pool string
	// DefaultPolicy gives the policy of a share whose configuration names none. An
	// error says that it cannot be told yet, and wraps ErrDefaultUnknown.
	DefaultPolicy func(id share.ID) (Default, error)
	// Card finds a card by its published name.
	Card func(device string) (card.Card, bool)
}

// Default is the policy of a share that names none.
type Default struct {
	Policy share.Policy
	// Why says what it comes from, for people.
	Why string
}

// Always is a default policy that holds for every share.
func Always(p share.Policy) func(share.ID) (Default, error) {
	return func(share.ID) (Default, error) { return Default{p, "built in"}, nil }
}

// Error says why one result of a claim cannot become a share.
type Error struct {
	Claim           share.Claim
	Request, Device string
	Err             error
}

func (e *Error) Error() string {
	return fmt.Sprintf("claim %s, request %s, card %s: %v", e.Claim, e.Request, e.Device, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes every Error that no waiting can mend an ErrImpossible.
func (e *Error) Is(target error) bool {
	return target == ErrImpossible && !errors.Is(e.Err, ErrNoSuchCard) && !errors.Is(e.Err, ErrDefaultUnknown)
}

// ErrImpossible: the claim asks for what this node can never give.
var ErrImpossible = errors.New("the claim asks for what cannot be")

// ErrNoSuchCard: the claim holds a card that this node does not have at
// present. It may come back, so preparing is worth another try.
var ErrNoSuchCard = errors.New("this node has no such card at present: bring it back, or delete the pod and its claim to have it placed elsewhere")

// ErrDefaultUnknown: the claim leaves its policy to the node, whose default is
// not known at present. Preparing is worth another try.
var ErrDefaultUnknown = errors.New("the claim names no policy, and the node's default is not known yet")

// Of names a claim.
func Of(claim *resourceapi.ResourceClaim) share.Claim {
	return share.Claim{UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name}
}

// Decode returns the shares of the claim on this node in the order of its
// allocation, none where it holds nothing of ours. The error joins one *Error
// for every result that cannot be honoured.
func Decode(claim *resourceapi.ResourceClaim, node Node) ([]share.Share, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s is not allocated", Of(claim))
	}
	allocation := claim.Status.Allocation.Devices
	var shares []share.Share
	var errs []error
	for i := range allocation.Results {
		result := &allocation.Results[i]
		if result.Driver != node.Driver {
			continue
		}
		s, err := decodeResult(Of(claim), result, allocation.Config, node)
		if err != nil {
			errs = append(errs, &Error{Claim: Of(claim), Request: result.Request, Device: result.Device, Err: err})
			continue
		}
		shares = append(shares, s)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return shares, nil
}

func decodeResult(claim share.Claim, result *resourceapi.DeviceRequestAllocationResult,
	configs []resourceapi.DeviceAllocationConfiguration, node Node,
) (share.Share, error) {
	s := share.Share{ID: share.ID{Claim: claim, Request: result.Request, Pool: result.Pool, Device: result.Device}}
	if result.ShareID != nil {
		s.ShareID = string(*result.ShareID)
	}
	if result.Pool != node.Pool {
		return s, fmt.Errorf("it is in pool %q, this node's pool is %q: the claim was allocated for another node, delete the pod and its claim to have it placed again", result.Pool, node.Pool)
	}
	if result.AdminAccess != nil && *result.AdminAccess {
		return s, errors.New("adminAccess is not offered, since it would still take room on the card: watch cards with the node's metrics")
	}
	c, ok := node.Card(result.Device)
	if !ok {
		return s, ErrNoSuchCard
	}
	s.Card = c.UUID
	var err error
	if s.Limits, s.Whole, err = limits(result, c); err != nil {
		return s, err
	}
	config, err := mergedConfig(result, configs, node.Driver)
	if err != nil {
		return s, err
	}
	err = applyConfig(&s, config, node.DefaultPolicy)
	return s, err
}

// limits are what the scheduler granted. A card that several claims cannot
// share is granted whole and without amounts.
func limits(result *resourceapi.DeviceRequestAllocationResult, c card.Card) (share.Limits, bool, error) {
	if result.ShareID == nil {
		return share.Limits{Cores: card.WholeCompute, Memory: c.Memory}, true, nil
	}
	var l share.Limits
	for _, p := range []struct {
		name     resourceapi.QualifiedName
		required bool
		to       *card.Percent
	}{{Cores, true, &l.Cores}, {OfflineCores, false, &l.OfflineCores}} {
		q, ok := result.ConsumedCapacity[p.name]
		if !ok && !p.required {
			continue
		}
		percent, err := percentOf(p.name, q, ok)
		if err != nil {
			return l, false, err
		}
		*p.to = percent
	}
	q, ok := result.ConsumedCapacity[Memory]
	memory, err := memoryOf(q, ok, c)
	if err != nil {
		return l, false, err
	}
	l.Memory = memory
	return l, l.Cores == card.WholeCompute && c.Memory > 0 && memory == c.Memory, nil
}

func percentOf(name resourceapi.QualifiedName, q resource.Quantity, ok bool) (card.Percent, error) {
	if !ok {
		return 0, fmt.Errorf("the allocation names no %s: Kubernetes 1.36 or newer with DRAConsumableCapacity is needed", name)
	}
	n, exact := wholeNumber(q)
	if !exact || n < 0 || n > int64(card.WholeCompute) {
		return 0, fmt.Errorf("%s of %s: whole percents of one card are right, 0 to 100; for whole cards ask for class card.tranche.dev with count: N",
			name, q.String())
	}
	return card.Percent(n), nil
}

// wholeNumber is the amount, and whether it is a whole number. AsInt64 answers
// that for some notations only: not for 1.5Gi, which is 1536Mi.
func wholeNumber(q resource.Quantity) (int64, bool) {
	n := q.Value()
	return n, q.CmpInt64(n) == 0
}

// minMemory of a share: less than this and not even a CUDA context fits.
const minMemory card.MiB = 256

func memoryOf(q resource.Quantity, ok bool, c card.Card) (card.MiB, error) {
	if !ok {
		return 0, errors.New("the allocation names no memory: Kubernetes 1.36 or newer with DRAConsumableCapacity is needed")
	}
	bytes, exact := wholeNumber(q)
	if !exact || bytes < minMemory.Bytes() || bytes > c.Memory.Bytes() {
		return 0, fmt.Errorf("memory of %s: a whole number of Mi is right, from %s to the card's %s; delete the pod and its claim to have it placed again",
			q.String(), minMemory, c.Memory)
	}
	memory := card.MiB(bytes >> 20)
	if memory.Bytes() != bytes {
		return 0, fmt.Errorf("memory of %s is not a whole number of Mi: %s or %s are", q.String(), memory, memory+1)
	}
	return memory, nil
}

// mergedConfig folds all configurations that apply to the result into one: the
// class's come first, and a field that is set later wins.
func mergedConfig(result *resourceapi.DeviceRequestAllocationResult, all []resourceapi.DeviceAllocationConfiguration,
	driver string,
) (*v1alpha1.ShareConfig, error) {
	var configs []*v1alpha1.ShareConfig
	for _, c := range resourceclaim.ConfigForResult(all, *result) {
		if c.Opaque.Driver != driver {
			continue
		}
		config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", origin(c.Source), err)
		}
		configs = append(configs, config)
	}
	return v1alpha1.Merge(configs...), nil
}

func origin(source resourceapi.AllocationConfigSource) string {
	if source == resourceapi.AllocationConfigSourceClass {
		return "of the device class"
	}
	return "of the claim"
}

// applyConfig puts policy, class and ceiling onto the share. A share that holds
// offline compute is an offline share where nobody said otherwise.
func applyConfig(s *share.Share, config *v1alpha1.ShareConfig, defaultPolicy func(share.ID) (Default, error)) error {
	if config.Class == nil && s.Limits.OfflineCores > 0 {
		offline := share.Offline
		config.Class = &offline
	}
	var fallback Default
	if config.Policy == nil {
		var err error
		if fallback, err = defaultPolicy(s.ID); err != nil {
			return err
		}
	}
	v1alpha1.SetDefaults(config, fallback.Policy)
	if errs := config.ValidateMerged(s.Limits, nil); len(errs) > 0 {
		if fallback.Policy != "" && len(config.Validate(nil)) == 0 {
			fallback.explain(errs)
		}
		return fmt.Errorf("configuration after merging class and claim: %w", errs.ToAggregate())
	}
	s.Policy, s.Class, s.BurstCeiling = *config.Policy, *config.Class, config.BurstCeiling()
	return nil
}

// explain where a policy comes from that the claim's owner finds neither in the claim nor in its
// class, in errors about it. A ceiling is wrong for the policy's sake, too.
func (d Default) explain(errs field.ErrorList) {
	for _, err := range errs {
		if err.Field == "policy" || err.Field == "burst.ceiling" {
			err.Detail += fmt.Sprintf(" (%s is the node's default: %s)", d.Policy, d.Why)
		}
	}
}
