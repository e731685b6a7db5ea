// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

func TestWhatABudgetCovers(t *testing.T) {
	t.Parallel()
	selector := labels.SelectorFromSet(labels.Set{"app": "db"})
	db := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "team", Labels: map[string]string{"app": "db", "tier": "1"}}}
	for name, tc := range map[string]struct {
		change func(*policy.PodDisruptionBudget, *v1.Pod)
		covers bool
	}{
		"pods with its labels":     {func(*policy.PodDisruptionBudget, *v1.Pod) {}, true},
		"none with other labels":   {func(_ *policy.PodDisruptionBudget, pod *v1.Pod) { pod.Labels = map[string]string{"app": "web"} }, false},
		"none without labels":      {func(_ *policy.PodDisruptionBudget, pod *v1.Pod) { pod.Labels = nil }, false},
		"none of other namespaces": {func(pdb *policy.PodDisruptionBudget, _ *v1.Pod) { pdb.Namespace = "other" }, false},
		"none that is being disrupted": {func(pdb *policy.PodDisruptionBudget, _ *v1.Pod) {
			pdb.Status.DisruptedPods = map[string]metav1.Time{"pod": metav1.Now()}
		}, false},
		"whoever else is being disrupted": {func(pdb *policy.PodDisruptionBudget, _ *v1.Pod) {
			pdb.Status.DisruptedPods = map[string]metav1.Time{"pod-2": metav1.Now()}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pdb, pod := &policy.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}, db.DeepCopy()
			tc.change(pdb, pod)
			require.Equal(t, tc.covers, covers(pdb, selector, pod))
		})
	}
}

func TestVictimsAgainstBudgetsAreCounted(t *testing.T) {
	t.Parallel()
	of := func(budgets ...int) placement.Holder { return placement.Holder{Budgets: budgets} }
	for name, tc := range map[string]struct {
		budgets []int32
		holders []placement.Holder
		victims []int
		want    int
	}{
		"nobody has a budget":               {nil, []placement.Holder{of(), of()}, []int{0, 1}, 0},
		"as many as may go":                 {[]int32{2}, []placement.Holder{of(0), of(0)}, []int{0, 1}, 0},
		"one more than may go":              {[]int32{1}, []placement.Holder{of(0), of(0)}, []int{0, 1}, 1},
		"none may go":                       {[]int32{0}, []placement.Holder{of(0), of(0), of()}, []int{0, 1, 2}, 2},
		"one victim counts once":            {[]int32{0, 0}, []placement.Holder{of(0, 1)}, []int{0}, 1},
		"each of two budgets is looked at":  {[]int32{1, 0}, []placement.Holder{of(0, 1)}, []int{0}, 1},
		"only those who are chosen count":   {[]int32{0}, []placement.Holder{of(0), of()}, []int{1}, 0},
		"what is overdrawn already, counts": {[]int32{-1}, []placement.Holder{of(0)}, []int{0}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := &table{holders: tc.holders, budgets: tc.budgets}
			require.Equal(t, tc.want, breaches(table, tc.victims))
			require.Equal(t, tc.want, breaches(table, tc.victims), "it spends nothing")
		})
	}
}

func TestWhoIsOffline(t *testing.T) {
	t.Parallel()
	claim := func(classes ...share.Class) *belonging {
		b := &belonging{}
		for _, class := range classes {
			b.has = append(b.has, holding{ours: true, kind: kind{class: class}})
		}
		return b
	}
	foreign := &belonging{has: []holding{{kind: kind{class: share.NoClass}}}}
	for name, tc := range map[string]struct {
		of   []*belonging
		want bool
	}{
		"who has only offline shares":           {[]*belonging{claim(share.Offline, share.Offline)}, true},
		"not who has another one in a claim":    {[]*belonging{claim(share.Offline, share.NoClass)}, false},
		"not who has another one, in any order": {[]*belonging{claim(share.Online), claim(share.Offline)}, false},
		"devices of others do not matter":       {[]*belonging{claim(share.Offline), foreign}, true},
		"not who has devices of others only":    {[]*belonging{foreign}, false},
		"not who has nothing":                   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			priority := int32(7)
			pod := &v1.Pod{Spec: v1.PodSpec{Priority: &priority}}
			holder := holderOf(pod, tc.of)
			require.Equal(t, tc.want, holder.Offline)
			require.Equal(t, priority, holder.Priority)
			require.False(t, holder.Ending)
			pod.DeletionTimestamp = new(metav1.Now())
			require.True(t, func() bool { h := holderOf(pod, tc.of); return h.Ending }())
		})
	}
}
