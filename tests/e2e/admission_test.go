// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dra/tranche/tests/kube"
)

func TestWrongRequestsAreRefusedAtOnceWithAdvice(t *testing.T) {
	n := newTeam(t, "admission")
	for name, tc := range map[string]struct {
		request resourceapi.DeviceRequest
		advice  []string
	}{
		"130 cores":               {kube.Request("gpu", "share.tranche.dev", 1, kube.Share("130", "4Gi")), []string{"request gpu", "cores: 130", "0 to 100", "class card.tranche.dev with count"}},
		"101 cores":               {kube.Request("gpu", "fixed.tranche.dev", 1, kube.Share("101", "4Gi")), []string{"cores: 101", "0 to 100"}},
		"only memory":             {kube.Request("gpu", "share.tranche.dev", 1, kube.Amounts{"memory": "4Gi"}), []string{"gpu", "cores"}},
		"only cores":              {kube.Request("gpu", "share.tranche.dev", 1, kube.Amounts{"cores": "30"}), []string{"gpu", "memory"}},
		"a negative value":        {kube.Request("gpu", "share.tranche.dev", 1, kube.Share("-5", "4Gi")), []string{"-5", "0 to 100"}},
		"half a percent":          {kube.Request("gpu", "share.tranche.dev", 1, kube.Share("500m", "4Gi")), []string{"500m", "did you mean 50?"}},
		"negative memory":         {kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "-1Gi")), []string{"-1Gi", "256Mi"}},
		"memory off the step":     {kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "300500Ki")), []string{"300500Ki", "1Mi"}},
		"too little memory":       {kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "255Mi")), []string{"255Mi", "256Mi"}},
		"slots":                   {kube.Request("gpu", "share.tranche.dev", 1, kube.Amounts{"cores": "30", "memory": "4Gi", "slots": "2"}), []string{"slots"}},
		"an unknown capacity":     {kube.Request("gpu", "share.tranche.dev", 1, kube.Amounts{"cores": "30", "memory": "4Gi", "core": "2"}), []string{"core"}},
		"a share of nothing":      {kube.Request("gpu", "share.tranche.dev", 1, nil), []string{"card.tranche.dev"}},
		"an offline share on top": {kube.Request("gpu", "offline.tranche.dev", 1, kube.Amounts{"cores": "10", "offlineCores": "20", "memory": "4Gi"}), []string{"cores: 0"}},
		"offline without cores":   {kube.Request("gpu", "offline.tranche.dev", 1, kube.Amounts{"offlineCores": "20", "memory": "4Gi"}), []string{"an offline share names cores: 0, offlineCores and memory"}},
		"more than 32 cards":      {kube.Request("gpu", "card.tranche.dev", 33, nil), []string{"more than 32", "several claims"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{tc.request}}}
			meta := metav1.ObjectMeta{Name: "wrong"}
			_, claimErr := client.ResourceV1().ResourceClaims(n.name).Create(t.Context(), &resourceapi.ResourceClaim{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
			_, templateErr := client.ResourceV1().ResourceClaimTemplates(n.name).Create(t.Context(), &resourceapi.ResourceClaimTemplate{
				ObjectMeta: meta, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
			}, metav1.CreateOptions{})
			for what, err := range map[string]error{"claim": claimErr, "template": templateErr} {
				require.Error(t, err, "the %s is refused", what)
				require.True(t, apierrors.IsInvalid(err) || apierrors.IsForbidden(err), "%s: %v", what, err)
				for _, advice := range tc.advice {
					require.ErrorContains(t, err, advice)
				}
			}
		})
	}
}

func TestConfigForADriverThatIsNearlyOursIsRefused(t *testing.T) {
	n := newTeam(t, "misspelt")
	spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{kube.Request("gpu", "share.tranche.dev", 1, kube.Share("10", "1Gi"))},
		Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig","policy":"fixed-share"}`)},
		}}}},
	}}
	for _, driver := range []string{"tranche.dev", "gpus.tranche.dev", "gpu.trance.dev"} {
		spec.Devices.Config[0].Opaque.Driver = driver
		_, err := client.ResourceV1().ResourceClaims(n.name).Create(t.Context(), &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: spec}, metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err), "%s: %v", driver, err)
		require.ErrorContains(t, err, "config 0 is for driver "+driver+": a share has config for driver gpu.tranche.dev only")
	}
	spec.Devices.Config[0].Opaque.Driver = "gpu.tranche.dev"
	_, err := client.ResourceV1().ResourceClaims(n.name).Create(t.Context(), &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestAClaimThatWasAdmittedCanStillBeChangedAndDeleted(t *testing.T) {
	n := newTeam(t, "metadata")
	claim := n.claim(t, "c", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	claim.Labels = map[string]string{"team": "a"}
	_, err := client.ResourceV1().ResourceClaims(n.name).Update(t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestDriverAndArbiterMayOnlyWhatTheyNeed(t *testing.T) {
	const dra, admission = "resource.k8s.io", "admissionregistration.k8s.io"
	type action struct{ verb, group, resource string }
	all := map[string]map[bool][]action{
		kube.DaemonSet: {
			true: {
				{"list", dra, "resourceslices"},
				{"watch", dra, "resourceslices"},
				{"create", dra, "resourceslices"},
				{"update", dra, "resourceslices"},
				{"delete", dra, "resourceslices"},
				{"get", dra, "resourceclaims"},
				{"list", dra, "resourceclaims"},
				{"watch", dra, "resourceclaims"},
				{"list", "", "nodes"},
				{"watch", "", "nodes"},
				{"list", dra, "deviceclasses"},
				{"list", admission, "validatingadmissionpolicies"},
				{"list", admission, "validatingadmissionpolicybindings"},
			},
			false: {
				{"deletecollection", dra, "resourceslices"},
				{"patch", dra, "resourceclaims/status"},
			},
		},
		kube.Arbiter: {
			true:  {{"patch", dra, "resourceclaims/status"}},
			false: {{"list", dra, "resourceslices"}, {"create", dra, "resourceslices"}, {"get", dra, "resourceclaims"}, {"list", "", "nodes"}},
		},
	}
	for _, of := range all {
		of[true] = append(of[true], action{"create", "", "events"}, action{"create", "events.k8s.io", "events"})
		of[false] = append(of[false],
			action{"update", dra, "resourceclaims"}, action{"patch", dra, "resourceclaims"}, action{"delete", dra, "resourceclaims"},
			action{"update", dra, "resourceclaims/status"},
			action{"create", dra, "deviceclasses"}, action{"update", dra, "deviceclasses"},
			action{"update", admission, "validatingadmissionpolicies"}, action{"delete", admission, "validatingadmissionpolicybindings"},
			action{"get", "", "secrets"}, action{"get", "", "configmaps"},
			action{"list", "", "pods"}, action{"create", "", "pods"},
			action{"update", "", "nodes"}, action{"delete", "", "nodes"})
	}
	for account, of := range all {
		for allowed, actions := range of {
			for _, a := range actions {
				require.Equal(t, allowed, may(t, account, a.verb, a.group, a.resource), "%s: %s %s in group %q", account, a.verb, a.resource, a.group)
			}
		}
	}
}

// may asks the API server whether an account of ours may do something in all namespaces.
func may(t *testing.T, account, verb, group, resource string) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	return mayExactly(t, account, authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: subresource})
}

// mayExactly asks it of one object or namespace, where the attributes name one.
func mayExactly(t *testing.T, account string, action authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + kube.System + ":" + account,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + kube.System, "system:authenticated"},
			ResourceAttributes: &action,
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.Allowed
}

// The driver's own identity, with a token bound to this node's pod as kubelet
// gives it, writes slices of this node and of no other.
func TestANodeWritesOnlyItsOwnSlices(t *testing.T) {
	node := os.Getenv("TRANCHE_CLUSTER_NODE")
	impersonated := driverOf(t, node)
	slice := func(name, node, driver, pool string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "x"}},
			},
		}
	}
	for name, tc := range map[string]struct {
		slice *resourceapi.ResourceSlice
		err   string
	}{
		"another node's slice":      {slice("foreign", "other", kube.Driver, "other"), "other"},
		"another driver's slice":    {slice("driver", node, "gpu.example.com", node), "gpu.example.com"},
		"a pool of another name":    {slice("pool", node, kube.Driver, "other"), "pool"},
		"the slice of its own node": {slice("own", node, kube.Driver, node), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := impersonated.ResourceV1().ResourceSlices().Create(t.Context(), tc.slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
		})
	}
	t.Run("somebody else's slice cannot be deleted", func(t *testing.T) {
		foreign, err := client.ResourceV1().ResourceSlices().Create(t.Context(), slice("foreign", "other", "gpu.example.com", "other"), metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, client.ResourceV1().ResourceSlices().Delete(context.Background(), foreign.Name, metav1.DeleteOptions{}))
		})
		require.Error(t, impersonated.ResourceV1().ResourceSlices().Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}))
	})
}
