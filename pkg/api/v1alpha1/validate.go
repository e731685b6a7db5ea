// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

func isOneOf[T comparable](value T, allowed []T) bool { return slices.Contains(allowed, value) }

// Validate checks one ShareConfig by itself, as it stands in a class or in a
// claim. What depends on other layers is checked by ValidateMerged. Paths start
// at path, which may be nil.
func (c *ShareConfig) Validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Policy != nil && !isOneOf(*c.Policy, share.Policies()) {
		errs = append(errs, field.NotSupported(path.Child("policy"), *c.Policy, share.Policies()))
	}
	if c.Class != nil && !isOneOf(*c.Class, share.Classes()) {
		errs = append(errs, field.NotSupported(path.Child("class"), *c.Class, share.Classes()))
	}
	if c.Burst != nil && c.Burst.Ceiling != nil {
		if p := *c.Burst.Ceiling; p < 1 || p > card.WholeCompute {
			errs = append(errs, field.Invalid(path.Child("burst", "ceiling"), int(p),
				"must be 1 to 100, in percent of the card"))
		}
	}
	return errs
}

// ValidateMerged checks a merged and defaulted ShareConfig against the amounts
// that the share holds: what each layer may say by itself can still be
// impossible together.
func (c *ShareConfig) ValidateMerged(limits share.Limits, path *field.Path) field.ErrorList {
	errs := c.Validate(path)
	if c.Policy == nil {
		errs = append(errs, field.Required(path.Child("policy"), "defaults must be set first"))
	}
	if c.Class == nil {
		errs = append(errs, field.Required(path.Child("class"), "defaults must be set first"))
	}
	if len(errs) > 0 {
		return errs
	}
	errs = append(errs, c.validateLedgers(limits, path)...)
	return append(errs, c.validatePolicy(limits, path)...)
}

// validateLedgers checks that the compute was taken from the ledger of the class.
func (c *ShareConfig) validateLedgers(limits share.Limits, path *field.Path) field.ErrorList {
	at := path.Child("class")
	switch {
	case *c.Class == share.Offline && limits.Cores > 0:
		return field.ErrorList{field.Invalid(at, *c.Class, fmt.Sprintf(
			"the share holds %d of cores: an offline share asks for cores: 0 and offlineCores: N", limits.Cores))}
	case *c.Class != share.Offline && limits.OfflineCores > 0:
		return field.ErrorList{field.Invalid(at, *c.Class, fmt.Sprintf(
			"the share holds %d of offlineCores: only class offline takes them, others ask for cores", limits.OfflineCores))}
	}
	return nil
}

// validatePolicy checks that the policy can be kept with the compute held.
func (c *ShareConfig) validatePolicy(limits share.Limits, path *field.Path) field.ErrorList {
	held, capacity := limits.Cores, "cores"
	if *c.Class == share.Offline {
		held, capacity = limits.OfflineCores, "offlineCores"
	}
	var errs field.ErrorList
	if *c.Policy == share.Fixed && held == 0 {
		errs = append(errs, field.Invalid(path.Child("policy"), *c.Policy, fmt.Sprintf(
			"at most 0 %% of the compute would never run anything: ask for %s of at least 1, or for policy %s", capacity, share.BestEffort)))
	}
	if c.Burst == nil || c.Burst.Ceiling == nil {
		return errs
	}
	at := path.Child("burst", "ceiling")
	ceiling := *c.Burst.Ceiling
	if !c.Policy.Bursts() {
		return append(errs, field.Invalid(at, int(ceiling), fmt.Sprintf(
			"policy %s takes no ceiling, only %s do", *c.Policy, listed(takesBurst()))))
	}
	if *c.Policy == share.GuaranteedBurst && ceiling < held {
		errs = append(errs, field.Invalid(at, int(ceiling), fmt.Sprintf(
			"must not be below the guaranteed %s of %d", capacity, held)))
	}
	return errs
}

func listed[T ~string](values []T) string {
	words := make([]string, 0, len(values))
	for _, v := range values {
		words = append(words, string(v))
	}
	return strings.Join(words, " and ")
}
