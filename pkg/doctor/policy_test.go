// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/pkg/labels"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func TestDefaultPolicy(t *testing.T) {
	t.Parallel()
	labelled := func(policy string) runtime.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fixture.Pool, Labels: map[string]string{"tranche.dev/default-policy": policy}}}
	}
	for name, tc := range map[string]struct {
		client *fake.Clientset
		want   want
	}{
		"chosen by the node's label": {fake.NewClientset(labelled("fixed-share")), want{doctor.OK, "fixed-share, for shares that name none (the node's label tranche.dev/default-policy)", ""}},
		"a node without the label": {
			fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fixture.Pool}}),
			want{doctor.OK, "best-effort, for shares that name none (flag --default-policy)", ""},
		},
		"a node that is not registered": {fake.NewClientset(), want{doctor.OK, "best-effort", ""}},
		"a label that names none": {
			fake.NewClientset(labelled("fixed")),
			want{doctor.Warning, `best-effort, for shares that name none (flag --default-policy): metadata.labels[tranche.dev/default-policy]: Unsupported value: "fixed"`, "kubectl label node node1 tranche.dev/default-policy-"},
		},
		"not allowed":          {refuse(fake.NewClientset(), "nodes", forbidden("nodes")), want{doctor.Warning, "not allowed to look at the node's labels", "kubectl get nodes --show-labels"}},
		"the API server fails": {refuse(fake.NewClientset(), "nodes", errBroken), want{doctor.Problem, "broken", "API server"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := doctor.DefaultPolicy{Client: tc.client, Node: fixture.Pool, Configured: labels.Configured{Policy: share.BestEffort, By: "flag --default-policy"}}
			requireFindings(t, []want{tc.want}, check.Examine(t.Context()))
		})
	}
}
