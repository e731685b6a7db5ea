// SPDX-License-Identifier: Apache-2.0

package guarantee

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tranche-dra/tranche/pkg/share"
)

// FieldManager owns what a Cluster writes.
const FieldManager = "tranche-arbiter"

// Cluster writes to the claims in the API server. It sends and reads nothing but what
// it needs, so as not to carry the code for all of Kubernetes' kinds.
type Cluster struct{ client *rest.RESTClient }

var _ Writer = (*Cluster)(nil)

// NewCluster makes a Cluster. It does not call the API server.
func NewCluster(config *rest.Config) (*Cluster, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make client for the status of claims: %w", err)
	}
	return &Cluster{client}, nil
}

// patch is a ResourceClaim with only what is ours. The UID keeps it from a later
// claim of the same name.
type patch struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		UID       string `json:"uid"`
	} `json:"metadata"`
	Status struct {
		Devices []Entry `json:"devices"`
	} `json:"status"`
}

// Write implements Writer. Of a claim that is gone, or whose shares are not allocated
// any more, the API server says so.
func (c *Cluster) Write(ctx context.Context, claim share.Claim, entries []Entry) error {
	p := patch{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}
	p.Metadata.Name, p.Metadata.Namespace, p.Metadata.UID = claim.Name, claim.Namespace, claim.UID
	p.Status.Devices = entries
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode status of claim %s: %w", claim, err)
	}
	err = c.client.Patch(types.ApplyPatchType).
		Namespace(claim.Namespace).Resource("resourceclaims").Name(claim.Name).SubResource("status").
		Param("fieldManager", FieldManager).Param("force", strconv.FormatBool(true)).
		// Of the answer nothing is of interest.
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").
		Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write status of claim %s: %w", claim, err)
	}
	return nil
}
