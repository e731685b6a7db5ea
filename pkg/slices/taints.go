// SPDX-License-Identifier: Apache-2.0

package slices

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dra/tranche/pkg/card"
)

// TaintKey is the key of the taint for faults of that kind, for example
// "gpu.tranche.dev/XidError". It is what a toleration names.
func TaintKey(kind string) string {
	name := label(kind)
	if name == "" {
		name = "Fault"
	}
	return DriverName + "/" + name
}

// taints of a card, one for each kind of fault, sorted by key, and the number of
// kinds that found no room. Their time is left to the API server: set here, it
// would make every publish differ from the one before.
func taints(faults []card.Fault) (out []resourceapi.DeviceTaint, dropped int) {
	byKey := map[string]resourceapi.DeviceTaint{}
	for _, f := range faults {
		t := resourceapi.DeviceTaint{Key: TaintKey(f.Kind), Value: label(f.Message), Effect: resourceapi.DeviceTaintEffectNoSchedule}
		if f.Evict {
			t.Effect = resourceapi.DeviceTaintEffectNoExecute
		}
		if old, found := byKey[t.Key]; !found || bySeverity(t, old) < 0 {
			byKey[t.Key] = t
		}
	}
	if len(byKey) == 0 {
		return nil, 0
	}
	for _, t := range byKey {
		out = append(out, t)
	}
	slices.SortFunc(out, bySeverity)
	if dropped = len(out) - resourceapi.DeviceTaintsMaxLength; dropped > 0 {
		out = out[:resourceapi.DeviceTaintsMaxLength]
	}
	slices.SortFunc(out, func(a, b resourceapi.DeviceTaint) int { return cmp.Compare(a.Key, b.Key) })
	return out, max(dropped, 0)
}

// bySeverity puts taints that evict before those that do not.
func bySeverity(a, b resourceapi.DeviceTaint) int {
	rank := func(t resourceapi.DeviceTaint) int {
		if t.Effect == resourceapi.DeviceTaintEffectNoExecute {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
}

var notInLabel = regexp.MustCompile(`[^-_.A-Za-z0-9]+`)

// label makes s acceptable as a label's name or value: the words are joined by
// dashes, and 63 characters of them are kept. Nothing may be left.
func label(s string) string {
	const around = "-_."
	s = strings.Trim(notInLabel.ReplaceAllString(s, "-"), around)
	if len(s) > validation.LabelValueMaxLength {
		s = strings.Trim(s[:validation.LabelValueMaxLength], around)
	}
	return s
}
