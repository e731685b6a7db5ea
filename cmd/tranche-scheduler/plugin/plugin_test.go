// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/placement"
	published "github.com/tranche-dra/tranche/pkg/slices"
)

func policy(name string) placement.Policy { return placement.Policy(name) }

func machines(cards int, names ...string) []runtime.Object {
	var all []runtime.Object
	for _, name := range names {
		all = append(all, machine(name, cards)...)
	}
	return all
}

// onCard keeps a pod to one card.
func onCard(index int, w want) want {
	w.selector = fmt.Sprintf("device.attributes['gpu.tranche.dev'].index == %d", index)
	return w
}

func TestCardIsChosenByPolicy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy string
		want   string
	}{
		"binpack takes the fullest card that has room": {"binpack", "node/card-1"},
		"spread takes the emptiest card":               {"spread", "node/card-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, one("spread", tc.policy), machines(3, "node")...)
			w.place(onCard(0, share("90", "4Gi"))) // too full for the last
			w.place(onCard(1, share("40", "4Gi")))
			require.Equal(t, []string{tc.want}, w.place(share("30", "4Gi")))
		})
	}
}

// What usually runs takes much memory and little compute: card 0 has room for one
// more of it, card 1 for none. A share of much compute would go to card 0 under
// binpack, which is the fuller one.
func TestFragmentationLeavesRoomForTheWorkload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one("spread", "fragmentation"), machines(2, "node")...)
	w.place(onCard(1, share("20", "36Gi")))
	for range 3 {
		w.place(onCard(0, share("10", "8Gi")))
	}
	large := share("60", "1Gi")
	require.Equal(t, []string{"node/card-1"}, w.place(large))
}

func TestNodeIsChosenByPolicy(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"binpack": "a", "spread": "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, one(name, "binpack"), machines(2, "a", "b")...)
			w.place(onNode(share("40", "4Gi"), "a"))
			require.Equal(t, want, w.place(share("20", "4Gi"))[0][:1])
		})
	}
}

// onNode keeps a pod to one node.
func onNode(w want, node string) want {
	w.node = node
	return w
}

func TestAnnotationsChooseForOnePod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one("spread", "binpack"), machines(2, "a", "b")...)
	w.place(onNode(share("40", "4Gi"), "a"))
	other := share("20", "4Gi")
	other.annotations = map[string]string{v1alpha1.AnnotationNodePolicy: "binpack", v1alpha1.AnnotationCardPolicy: "spread"}
	require.Equal(t, []string{"a/card-1"}, w.place(other))
}

func TestTwoProfilesOfOneProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]*v1alpha1.TrancheArgs{"packs": policies("spread", "binpack"), "spreads": policies("spread", "spread")},
		machines(2, "node")...)
	packed, spread := share("10", "1Gi"), share("10", "1Gi")
	packed.scheduler, spread.scheduler = "packs", "spreads"
	require.Equal(t, []string{"node/card-0"}, w.place(packed))
	require.Equal(t, []string{"node/card-0"}, w.place(packed))
	require.Equal(t, []string{"node/card-1"}, w.place(spread), "what the other profile placed is seen")
	require.Equal(t, []string{"node/card-1"}, w.place(spread))
}

func TestClassesComeBeforeTheCardPolicy(t *testing.T) {
	t.Parallel()
	online := func() want { a := share("20", "4Gi"); a.class = "online"; return a }
	offline := func() want {
		return want{class: "offline", cores: "0", offline: "20", memory: "4Gi"}
	}
	for name, tc := range map[string]struct {
		before []want
		then   want
		want   string
	}{
		"online spreads over cards though the policy packs": {[]want{online()}, online(), "node/card-1"},
		"offline packs":                             {[]want{offline()}, offline(), "node/card-0"},
		"online avoids offline work":                {[]want{onCard(0, offline()), onCard(1, online())}, online(), "node/card-2"},
		"offline avoids online work":                {[]want{onCard(0, online())}, offline(), "node/card-1"},
		"online and offline together where need be": {[]want{onCard(0, online()), onCard(1, online()), onCard(2, online())}, offline(), "node/card-0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, one("spread", "binpack"), machines(3, "node")...)
			for _, before := range tc.before {
				w.place(before)
			}
			require.Equal(t, []string{tc.want}, w.place(tc.then))
		})
	}
}

func TestWholeCards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one("binpack", "binpack"), machines(3, "node")...)
	w.place(onCard(1, share("10", "1Gi")))
	require.ElementsMatch(t, []string{"node/card-0", "node/card-2"}, w.place(want{class: "card", count: 2}))
	require.Equal(t, []string{"node/card-1"}, w.place(share("10", "1Gi")))
	require.Contains(t, w.refused(want{class: "card"}), "no card is unused: 3 cards are in use")
}

// What the model does not decide is decided by the allocator, with the cards in
// the same order.
func TestTheAllocatorDecidesWhatTheModelDoesNot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then want
		node []runtime.Object
	}{
		"a constraint":                    {then: want{cores: "10", memory: "1Gi", constraint: "gpu.tranche.dev/productName"}},
		"memory that is left to the card": {then: want{class: "card", cores: "0", more: map[resourceapi.QualifiedName]string{published.CapacityOfflineCores: "0"}}},
		"capacity of another form": {then: share("10", "1Gi"), node: machine("node", 2, func(s *resourceapi.ResourceSlice) {
			for i := range s.Spec.Devices {
				s.Spec.Devices[i].Capacity["encoders"] = resourceapi.DeviceCapacity{Value: *quantity("3")}
			}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.node == nil {
				tc.node = machine("node", 2)
			}
			w := newWorld(t, one("spread", "spread"), tc.node...)
			w.place(onCard(0, share("10", "1Gi")))
			require.Equal(t, []string{"node/card-1"}, w.place(tc.then))
		})
	}
}
