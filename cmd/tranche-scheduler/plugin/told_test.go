// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// activating notes who is activated.
type activating struct {
	fwk.Handle
	names []string
}

func (a *activating) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	a.names = append(a.names, slices.Collect(maps.Keys(pods))...)
}

func named(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
}

// A pod is held back until the last of its victims is told, and then tried, if it was
// held back at all; when one cannot be told, Kubernetes tries it.
func TestHeldBackUntilVictimsAreTold(t *testing.T) {
	t.Parallel()
	ending := named("ending")
	ending.DeletionTimestamp = new(metav1.Now())
	victims := []*v1.Pod{named("one"), ending, named("two")}
	const uid = types.UID("urgent")
	type step struct {
		do    func(*evictions)
		holds bool
		tried int
	}
	ask := func(*evictions) {}
	chosen := func(e *evictions) { e.chosen(uid, "node", victims) }
	told := func(e *evictions) { e.tell(uid, victims, nil) }
	failed := func(e *evictions) { e.tell(uid, victims, errors.New("no")) }
	for name, steps := range map[string][]step{
		"chosen, then told":    {{ask, true, 0}, {chosen, true, 0}, {told, true, 0}, {told, false, 1}, {told, false, 1}},
		"told before chosen":   {{told, true, 0}, {told, false, 1}, {chosen, false, 1}},
		"all of them end":      {{func(e *evictions) { e.chosen(uid, "node", victims[1:2]) }, false, 0}},
		"one cannot be told":   {{chosen, true, 0}, {failed, false, 0}, {told, false, 0}, {chosen, false, 0}},
		"the pod has its node": {{chosen, true, 0}, {func(e *evictions) { e.forget(uid) }, false, 0}, {told, false, 0}},
		"others are told":      {{chosen, true, 0}, {func(e *evictions) { e.tell("other", victims[:1], nil) }, true, 0}},
		"once more, from anew": {{told, true, 0}, {told, false, 1}, {func(e *evictions) { e.begin(named("urgent")) }, true, 1}, {told, true, 1}, {told, false, 2}},
		"nobody was found":     {{func(e *evictions) { e.forget(uid) }, false, 0}, {chosen, false, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var handle activating
			e := &evictions{framework: &handle, logger: logr.Discard(), by: map[types.UID]*eviction{}}
			require.False(t, e.hold(uid))
			e.begin(named("urgent"))
			for i, s := range steps {
				s.do(e)
				require.Equal(t, s.holds, e.hold(uid), "step %d", i)
				require.Len(t, handle.names, s.tried, "step %d", i)
			}
			require.NotContains(t, handle.names, "team/other")
		})
	}
}

func TestVictimsAreKnownUntilAnEvictionIsForgotten(t *testing.T) {
	t.Parallel()
	e := &evictions{framework: &activating{}, logger: logr.Discard(), by: map[types.UID]*eviction{}}
	for _, name := range []string{"first", "second"} {
		e.begin(named(name))
		e.chosen(types.UID(name), "node", []*v1.Pod{named("of-" + name)})
	}
	require.True(t, e.gives("first", "of-first"))
	require.False(t, e.gives("first", "of-second"))
	require.ElementsMatch(t, []types.UID{"of-first", "of-second"}, e.victims().UnsortedList())
	e.tell("second", []*v1.Pod{named("of-second")}, errors.New("no"))
	require.ElementsMatch(t, []types.UID{"of-first"}, e.victims().UnsortedList(), "who could not be told stays")
	e.forget("first")
	require.False(t, e.gives("first", "of-first"))
	require.Empty(t, e.victims())
}
