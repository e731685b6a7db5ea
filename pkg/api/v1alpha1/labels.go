// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	// LabelDefaultPolicy on a Node is the policy of shares that are prepared there
	// and name none. It wins over flag and file of tranche-node, which are usually
	// the same for all nodes.
	LabelDefaultPolicy = Group + "/default-policy"
	// LabelBurstCeiling on a ResourceClaim takes the place of burst.ceiling for all
	// shares of the claim that may burst, in percent of the card, while the claim is
	// in use. Without the label what the claim's configuration says holds again.
	LabelBurstCeiling = Group + "/burst-ceiling"
)

// PolicyOfLabel reads the value of LabelDefaultPolicy.
func PolicyOfLabel(value string) (share.Policy, error) {
	if p := share.Policy(value); isOneOf(p, share.Policies()) {
		return p, nil
	}
	return "", field.NotSupported(field.NewPath("metadata", "labels").Key(LabelDefaultPolicy), share.Policy(value), share.Policies())
}

// CeilingOfLabel reads the value of LabelBurstCeiling on a claim with those shares,
// and checks that each of them that may burst can have that ceiling. One that no
// share of the claim takes is an error, too.
func CeilingOfLabel(value string, shares []share.Share) (card.Percent, error) {
	at := field.NewPath("metadata", "labels").Key(LabelBurstCeiling)
	n, err := strconv.ParseUint(value, 10, 8)
	ceiling := card.Percent(n)
	if err != nil || ceiling < 1 || ceiling > card.WholeCompute {
		return 0, field.Invalid(at, value, "must be a whole number of 1 to 100, in percent of the card")
	}
	taken := false
	for i := range shares {
		s := &shares[i]
		if !s.Policy.Bursts() {
			continue
		}
		taken = true
		config := &ShareConfig{Policy: &s.Policy, Class: &s.Class, Burst: &Burst{Ceiling: &ceiling}}
		for _, err := range config.ValidateMerged(s.Limits, nil) {
			return 0, field.Invalid(at, value, fmt.Sprintf("request %s, card %s: %s", s.Request, s.Card, err.Detail))
		}
	}
	if !taken {
		return 0, field.Invalid(at, value, "no share of the claim takes a ceiling, only those under "+listed(takesBurst())+" do")
	}
	return ceiling, nil
}
