// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// refuse makes the API server answer every list of that resource with an error.
func refuse(client *fake.Clientset, resource string, err error) *fake.Clientset {
	client.PrependReactor("list", resource, func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return client
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rule"))
}

func TestAPIServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version string
		forced  bool
		err     error
		want    want
	}{
		"of today":            {"v1.37.2", false, nil, want{doctor.OK, "Kubernetes v1.37.2 answers", ""}},
		"the oldest":          {"v1.36.0-rc.0", false, nil, want{doctor.OK, "v1.36.0-rc.0", ""}},
		"too old":             {"v1.35.9+vendor", false, nil, want{doctor.Problem, "v1.35.9+vendor allocates shares wrongly", "1.36"}},
		"too old, and forced": {"v1.35.9", true, nil, want{doctor.Warning, "forceOldKubernetes", "1.36"}},
		"of a strange build":  {"main", false, nil, want{doctor.OK, "main", ""}},
		"that is not reached": {"", false, errBroken, want{doctor.Problem, "broken", "reach"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: tc.version}
			client.PrependReactor("get", "version", func(k8stesting.Action) (bool, runtime.Object, error) { return tc.err != nil, nil, tc.err })
			requireFindings(t, []want{tc.want}, doctor.APIServer{Client: client, Forced: tc.forced}.Examine(t.Context()))
		})
	}
}

// slice publishes cards, shared or whole.
func slice(name string, generation int64, shared bool, cards ...card.Card) *resourceapi.ResourceSlice {
	node := fixture.Pool
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceSliceSpec{Driver: driverName, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: generation}},
	}
	for _, c := range cards {
		d := resourceapi.Device{Name: c.DeviceName()}
		if shared {
			d.AllowMultipleAllocations = &shared
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}

func TestSlices(t *testing.T) {
	t.Parallel()
	first, second := fixture.Card(0), fixture.Card(1)
	whole := fixture.Card(2)
	whole.WholeOnly = true
	for name, tc := range map[string]struct {
		slices []runtime.Object
		cards  cardsOf
		want   []want
	}{
		"every card, in two slices": {
			[]runtime.Object{slice("a", 1, true, first), slice("b", 1, true, second)},
			cardsOf{cards: []card.Card{first, second}},
			[]want{{doctor.OK, "2 cards published in 2 slices", ""}},
		},
		"a node without cards": {[]runtime.Object{slice("a", 1, true)}, cardsOf{}, []want{{doctor.OK, "0 cards published in 1 slice", ""}}},
		"a whole card": {
			[]runtime.Object{slice("a", 1, false, whole)}, cardsOf{cards: []card.Card{whole}}, []want{{doctor.OK, "1 card published", ""}},
		},
		"a card too few and one too many": {
			[]runtime.Object{slice("a", 1, true, second)},
			cardsOf{cards: []card.Card{first}},
			[]want{{doctor.Problem, "card " + string(first.UUID) + " is not published", "events"}, {doctor.Problem, "no such card", "log"}},
		},
		"what an older generation listed does not count": {
			[]runtime.Object{slice("a", 1, true, first), slice("b", 2, true)},
			cardsOf{cards: []card.Card{first}},
			[]want{{doctor.Problem, "is not published", "events"}},
		},
		"cards published whole by an API server without the feature": {
			[]runtime.Object{slice("a", 1, false, first)},
			cardsOf{cards: []card.Card{first}},
			[]want{{doctor.Problem, "not for sharing", "DRAConsumableCapacity"}},
		},
		"none":                     {nil, cardsOf{cards: []card.Card{first}}, []want{{doctor.Problem, "no ResourceSlice of this node", "logs"}}},
		"cards that do not answer": {[]runtime.Object{slice("a", 1, true, first)}, cardsOf{err: errBroken}, []want{{doctor.Skipped, "cannot be listed", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(tc.slices...)
			client.PrependReactor("list", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
				require.Equal(t, "spec.driver=gpu.tranche.dev,spec.nodeName=node1", action.(k8stesting.ListAction).GetListRestrictions().Fields.String())
				return false, nil, nil
			})
			check := doctor.Slices{Client: client, Node: fixture.Pool, Driver: driverName, Cards: tc.cards}
			requireFindings(t, tc.want, check.Examine(t.Context()))
		})
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	class := func(name string) runtime.Object {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for name, tc := range map[string]struct {
		client *fake.Clientset
		want   want
	}{
		"all, and one of somebody else's": {fake.NewClientset(class("a"), class("b"), class("x")), want{doctor.OK, "all 2 are there", ""}},
		"one is missing":                  {fake.NewClientset(class("a")), want{doctor.Warning, "missing: b", "deviceclasses"}},
		"none":                            {fake.NewClientset(class("x")), want{doctor.Problem, "none of the DeviceClasses", "deviceclasses"}},
		"not allowed":                     {refuse(fake.NewClientset(), "deviceclasses", forbidden("deviceclasses")), want{doctor.Warning, "not allowed to look at DeviceClasses", "kubectl get deviceclasses"}},
		"the API server fails":            {refuse(fake.NewClientset(), "deviceclasses", errBroken), want{doctor.Problem, "broken", "API server"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireFindings(t, []want{tc.want}, doctor.Classes{Client: tc.client, Names: []string{"a", "b"}}.Examine(t.Context()))
		})
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	for name, tc := range map[string]struct {
		client *fake.Clientset
		want   want
	}{
		"there and bound":   {fake.NewClientset(policy, binding), want{doctor.OK, "all 1 are there and bound", ""}},
		"there, not bound":  {fake.NewClientset(policy), want{doctor.Warning, "missing: the binding b", "deployments/static"}},
		"neither":           {fake.NewClientset(), want{doctor.Warning, "missing: p, the binding b", "deployments/static"}},
		"not allowed":       {refuse(fake.NewClientset(policy, binding), "validatingadmissionpolicies", forbidden("x")), want{doctor.Warning, "not allowed to look at admission policies", "kubectl get validatingadmissionpolicies;"}},
		"half allowed only": {refuse(fake.NewClientset(policy, binding), "validatingadmissionpolicybindings", forbidden("x")), want{doctor.Warning, "bindings", "kubectl get validatingadmissionpolicybindings"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := doctor.Policies{Client: tc.client, Policies: []string{"p"}, Bindings: []string{"b"}}
			requireFindings(t, []want{tc.want}, check.Examine(t.Context()))
		})
	}
}
