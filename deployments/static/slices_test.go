// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	k8sadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tranche-dra/tranche/deployments/static/admission"
)

const (
	slicesPolicy = "resourceslices.gpu.tranche.dev"
	nodeDriver   = "system:serviceaccount:tranche-system:tranche-node"
)

// slice of a node; an empty node means all nodes.
func slice(t *testing.T, driver, node, pool string) *resourceapi.ResourceSlice {
	t.Helper()
	where := "nodeName: " + node
	if node == "" {
		where = "allNodes: true"
	}
	return decodeOne(t, fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\n"+
		"spec: {driver: %s, %s, pool: {name: %s, generation: 1, resourceSliceCount: 1}}\n", driver, where, pool)).(*resourceapi.ResourceSlice)
}

// on is the identity of a service account whose token is bound to a pod on a node.
func on(name, node string) user.Info {
	info := &user.DefaultInfo{Name: name}
	if node != "" {
		info.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return info
}

func TestSlicesPolicy(t *testing.T) {
	t.Parallel()
	policy := policy(t, slicesPolicy)
	const gpu = "gpu.tranche.dev"
	own := func(t *testing.T) *resourceapi.ResourceSlice { return slice(t, gpu, "n1", "n1") }
	others := func(t *testing.T) *resourceapi.ResourceSlice { return slice(t, gpu, "n2", "n2") }
	for name, row := range map[string]struct {
		user user.Info
		// now is what the slice shall be, before what it was; nil for none.
		now, before func(*testing.T) *resourceapi.ResourceSlice
		denial      string
	}{
		"its own slice is made":                      {on(nodeDriver, "n1"), own, nil, ""},
		"its own slice is changed":                   {on(nodeDriver, "n1"), own, own, ""},
		"its own slice is deleted":                   {on(nodeDriver, "n1"), nil, own, ""},
		"another node's slice is made":               {on(nodeDriver, "n1"), others, nil, "node n1 may not write a slice of node n2; the pool of node n1 has its name, not n2"},
		"another node's slice is changed":            {on(nodeDriver, "n1"), others, others, "node n1 may not write a slice of node n2"},
		"another node's slice is taken over":         {on(nodeDriver, "n1"), own, others, "node n1 may not write a slice of node n2"},
		"another node's slice is deleted":            {on(nodeDriver, "n1"), nil, others, "node n1 may not write a slice of node n2"},
		"a slice of all nodes":                       {on(nodeDriver, "n1"), func(t *testing.T) *resourceapi.ResourceSlice { return slice(t, gpu, "", "n1") }, nil, "node n1 may not write a slice of no single node"},
		"another driver's slice":                     {on(nodeDriver, "n1"), func(t *testing.T) *resourceapi.ResourceSlice { return slice(t, "gpu.example.com", "n1", "n1") }, nil, "only slices of driver gpu.tranche.dev may be written, not of gpu.example.com"},
		"a pool of another name":                     {on(nodeDriver, "n1"), func(t *testing.T) *resourceapi.ResourceSlice { return slice(t, gpu, "n1", "n2") }, nil, "the pool of node n1 has its name, not n2"},
		"a token that is bound to no node":           {on(nodeDriver, ""), own, nil, "the token names no node"},
		"a node that is the empty text":              {&user.DefaultInfo{Name: nodeDriver, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {}}}, own, nil, "the token names no node"},
		"another account of the same name elsewhere": {on("system:serviceaccount:default:tranche-node", "n1"), others, nil, ""},
		"kubelet cleans up":                          {on("system:node:n1", ""), nil, own, ""},
		"an administrator":                           {on("admin", ""), others, nil, ""},
	} {
		for _, schemaless := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/schemaless=%t", name, schemaless), func(t *testing.T) {
				t.Parallel()
				request := admission.Request{
					Resource: resourceapi.SchemeGroupVersion.WithResource("resourceslices"), User: row.user, Schemaless: schemaless,
				}
				switch {
				case row.before == nil:
					request.Operation, request.Object = k8sadmission.Create, row.now(t)
				case row.now == nil:
					request.Operation, request.OldObject = k8sadmission.Delete, row.before(t)
				default:
					request.Operation, request.Object, request.OldObject = k8sadmission.Update, row.now(t), row.before(t)
				}
				denials, err := policy.Review(t.Context(), request)
				require.NoError(t, err)
				if row.denial == "" {
					require.Empty(t, denials)
					return
				}
				require.Len(t, denials, 1)
				require.Contains(t, denials[0], row.denial)
			})
		}
	}
}
