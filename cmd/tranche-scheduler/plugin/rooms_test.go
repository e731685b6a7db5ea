// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	published "github.com/tranche-dra/tranche/pkg/slices"
)

// wholeOnly makes cards that are not shared.
func wholeOnly(s *resourceapi.ResourceSlice) {
	for i := range s.Spec.Devices {
		device := &s.Spec.Devices[i]
		memory := device.Capacity[published.CapacityMemory]
		memory.RequestPolicy = nil
		device.AllowMultipleAllocations = nil
		device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{published.CapacityMemory: memory}
	}
}

// What a victim leaves, and what is free beside it, is kept for whom it gave way to:
// compute, memory, and whole cards.
func TestRoomIsKeptFromOthers(t *testing.T) {
	t.Parallel()
	whole := want{class: "card"}
	elsewhere := share("10", "8Gi")
	elsewhere.scheduler = "other"
	for name, tc := range map[string]struct {
		change             []func(*resourceapi.ResourceSlice)
		victim, asks, late want
		options            []podOption
	}{
		"memory":              {victim: share("10", "30Gi"), asks: share("10", "35Gi"), late: share("10", "8Gi")},
		"compute":             {victim: share("80", "1Gi"), asks: share("90", "1Gi"), late: share("20", "1Gi")},
		"offline compute":     {victim: offlineShare("80", "1Gi"), asks: offlineShare("90", "1Gi"), late: offlineShare("20", "1Gi")},
		"a whole card":        {victim: whole, asks: whole, late: share("0", "1Gi")},
		"all of a card":       {victim: share("10", "1Gi"), asks: whole, late: share("0", "1Gi")},
		"a card not shared":   {change: []func(*resourceapi.ResourceSlice){wholeOnly}, victim: whole, asks: whole, late: whole},
		"from as urgent pods": {victim: share("10", "30Gi"), asks: share("10", "35Gi"), late: share("10", "8Gi"), options: []podOption{withPriority(urgent)}},
		"from other profiles": {victim: share("10", "30Gi"), asks: share("10", "35Gi"), late: elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profiles := one("spread", "binpack")
			profiles["other"] = policies("binpack", "spread")
			c := &crowd{world: newWorld(t, profiles, machine("node", 1, tc.change...)...)}
			c.givesWay(tc.victim, tc.asks)
			require.NotEmpty(t, c.refusedAs("late", tc.late, tc.options...))
			c.keepsNobodyOut("late")
			c.release("victim")
			require.Equal(t, []string{"node/card-0"}, c.placed("urgent"))
		})
	}
}

// Room is not kept from who is more urgent: the pod that it was kept for waits on.
func TestWhoIsMoreUrgentTakesTheRoom(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(1, "node")...)
	c.givesWay(share("10", "30Gi"), share("10", "35Gi"))
	require.Equal(t, []string{"node/card-0"}, c.settle("higher", share("10", "8Gi"), withPriority(urgent+1)))
	c.release("victim")
	c.settle("small", share("10", "1Gi"))
	require.Contains(t, c.waitsFor("urgent"), "no card has 10 percent compute and 35 GiB free")
}

// Somebody takes the nomination back: who was kept out is let in.
func TestRoomOfWhoIsNoLongerNominatedIsGivenAway(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(1, "node")...)
	c.givesWay(share("10", "30Gi"), share("10", "35Gi"))
	require.NotEmpty(t, c.refusedAs("small", share("10", "6Gi")))
	pods := c.client.CoreV1().Pods(namespace)
	pod, err := pods.Get(t.Context(), "urgent", metav1.GetOptions{})
	require.NoError(t, err)
	pod.Status.NominatedNodeName = ""
	_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.placed("small")
}

// A pod for whom others gave way asks for whole cards where one is in use by a pod that
// is as urgent.
func TestCardsOfEquallyUrgentPodsAreNotTaken(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, machines(2, "node")...).releasing()
	c.settle("equal", onCard(0, share("10", "1Gi")), withPriority(urgent))
	c.settle("victim", onCard(1, share("10", "1Gi")))
	require.Equal(t, []string{"node/card-1"}, c.settle("urgent", want{class: "card"}, withPriority(urgent)))
	c.there("equal")
	require.NotEmpty(t, c.refusedAs("second", want{class: "card"}, withPriority(urgent)))
	c.keepsNobodyOut("second")
}

// Requests with alternatives go by which of them can be had, not by what is free.
func TestTheFirstOfSeveralComesBeforeThePolicy(t *testing.T) {
	t.Parallel()
	c := &crowd{world: newWorld(t, one("binpack", "binpack"), machines(1, "a", "b")...)}
	c.settle("first", onNode(share("50", "1Gi"), "a"))
	c.create(firstOf("several", share("80", "1Gi"), share("20", "1Gi")))
	c.comeWith("several", "several")
	require.Equal(t, []string{"b/card-0"}, c.placed("several"), "binpack would have the second on node a")
}
