// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dra/tranche/pkg/placement"
)

const (
	// AnnotationNodePolicy on a Pod takes the place of TrancheArgs.NodePolicy for
	// this pod.
	AnnotationNodePolicy = Group + "/node-policy"
	// AnnotationCardPolicy likewise takes the place of TrancheArgs.CardPolicy.
	AnnotationCardPolicy = Group + "/card-policy"
)

// TrancheArgs are the arguments of the plug-in Tranche in a profile of
// tranche-scheduler.
//
// +kubebuilder:object:root=true
type TrancheArgs struct {
	metav1.TypeMeta `json:",inline"`

	// NodePolicy says which node a pod goes to among those that have room: binpack,
	// spread or fragmentation. Default spread.
	NodePolicy placement.Policy `json:"nodePolicy,omitempty"`
	// CardPolicy says which card of that node. Default binpack.
	CardPolicy placement.Policy `json:"cardPolicy,omitempty"`

	// FilterTimeout is how long allocating on one node may take, as that of
	// DynamicResourcesArgs; 0s is for ever. Default 10s.
	FilterTimeout *metav1.Duration `json:"filterTimeout,omitempty"`
	// BindingTimeout is how long a pod waits for its devices to be ready, as that of
	// DynamicResourcesArgs; at least 1s. Default 10m.
	BindingTimeout *metav1.Duration `json:"bindingTimeout,omitempty"`
}

// Defaults of TrancheArgs. Those of the policies are placement.Default.
const (
	DefaultFilterTimeout  = 10 * time.Second
	DefaultBindingTimeout = 10 * time.Minute
)

// NewTrancheArgs is an empty TrancheArgs that says what it is.
func NewTrancheArgs() *TrancheArgs {
	return &TrancheArgs{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: KindTrancheArgs}}
}

// DecodeTrancheArgs reads the arguments of the plug-in, which are JSON, as
// strictly as Decode. The result is neither defaulted nor validated.
func DecodeTrancheArgs(raw []byte) (*TrancheArgs, error) {
	into := &TrancheArgs{}
	if err := decodeStrict(raw, into, KindTrancheArgs, false); err != nil {
		return nil, fmt.Errorf("decode %s: %w", KindTrancheArgs, err)
	}
	return into, nil
}

// SetTrancheArgsDefaults fills what is left open.
func SetTrancheArgsDefaults(a *TrancheArgs) {
	setDefault(&a.NodePolicy, placement.Default().Node)
	setDefault(&a.CardPolicy, placement.Default().Card)
	setUnset(&a.FilterTimeout, metav1.Duration{Duration: DefaultFilterTimeout})
	setUnset(&a.BindingTimeout, metav1.Duration{Duration: DefaultBindingTimeout})
}

// Validate checks arguments that are defaulted. Paths start at path, which may
// be nil.
func (a *TrancheArgs) Validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validatePlacement(a.NodePolicy, path.Child("nodePolicy"))...)
	errs = append(errs, validatePlacement(a.CardPolicy, path.Child("cardPolicy"))...)
	if t := a.FilterTimeout; t != nil && t.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("filterTimeout"), t.Duration.String(), "must not be negative; 0s is for ever"))
	}
	if t := a.BindingTimeout; t != nil && t.Duration < time.Second {
		errs = append(errs, field.Invalid(path.Child("bindingTimeout"), t.Duration.String(), "must be at least 1s"))
	}
	return errs
}

// PlacementOfAnnotations is a pod's own policies, and the given ones where it
// names none.
func PlacementOfAnnotations(annotations map[string]string, otherwise placement.Policies) (placement.Policies, error) {
	chosen := otherwise
	path := field.NewPath("metadata", "annotations")
	var errs field.ErrorList
	for _, a := range []struct {
		key    string
		policy *placement.Policy
	}{{AnnotationNodePolicy, &chosen.Node}, {AnnotationCardPolicy, &chosen.Card}} {
		if value, ok := annotations[a.key]; ok {
			*a.policy = placement.Policy(value)
			errs = append(errs, validatePlacement(*a.policy, path.Key(a.key))...)
		}
	}
	return chosen, errs.ToAggregate()
}

func validatePlacement(p placement.Policy, path *field.Path) field.ErrorList {
	if isOneOf(p, placement.Known()) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, p, placement.Known())}
}
