// SPDX-License-Identifier: Apache-2.0

package guarantee_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tranche-dra/tranche/pkg/guarantee"
	"github.com/tranche-dra/tranche/pkg/share"
)

func TestOnlyOurEntriesAreApplied(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		answer := any(&metav1.PartialObjectMetadata{})
		if code != http.StatusOK {
			answer = apierrors.NewConflict(resourceapi.Resource("resourceclaims"), "c", io.EOF).Status()
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	cluster, err := guarantee.NewCluster(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	claim := share.Claim{UID: "uid-1", Namespace: "team", Name: "c"}
	entries := []guarantee.Entry{
		{Driver: "gpu.tranche.dev", Pool: "node1", Device: "gpu-0", ShareID: "s-0", Data: json.RawMessage(`{"kind":"ShareStatus"}`)},
		{Driver: "gpu.tranche.dev", Pool: "node1", Device: "gpu-1", Data: json.RawMessage(`{}`)},
	}
	require.NoError(t, cluster.Write(t.Context(), claim, entries))
	require.Equal(t, http.MethodPatch, got.Method)
	require.Equal(t, "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/c/status", got.URL.Path)
	require.Equal(t, "fieldManager=tranche-arbiter&force=true", got.URL.RawQuery)
	require.Equal(t, "application/apply-patch+yaml", got.Header.Get("Content-Type"))
	require.JSONEq(t, `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c","namespace":"team","uid":"uid-1"},"status":{"devices":[
		{"driver":"gpu.tranche.dev","pool":"node1","device":"gpu-0","shareID":"s-0","data":{"kind":"ShareStatus"}},
		{"driver":"gpu.tranche.dev","pool":"node1","device":"gpu-1","data":{}}]}}`, string(body))
	var decoded resourceapi.ResourceClaim
	require.NoError(t, json.Unmarshal(body, &decoded))
	require.Equal(t, "s-0", *decoded.Status.Devices[0].ShareID)
	require.Nil(t, decoded.Status.Devices[1].ShareID, "a whole card of another vendor has none")

	code = http.StatusConflict
	err = cluster.Write(t.Context(), claim, entries)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err, "write status of claim team/c: ")
}
