// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/pkg/metrics"
	"github.com/tranche-dra/tranche/pkg/share"
)

// claimReader reads claims for healing. There is no cache: it is asked a few
// times a minute at most.
type claimReader struct{ client kubernetes.Interface }

// GetClaim implements reconcile.Claims.
func (c claimReader) GetClaim(ctx context.Context, name types.NamespacedName) (*resourceapi.ResourceClaim, error) {
	return c.client.ResourceV1().ResourceClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}

// reports tells people what they should look at.
type reports struct {
	events   driver.Events
	recorder interface{ Quarantined() }
}

// RecordDamaged implements prepare.Reporter.
func (r reports) RecordDamaged(ctx context.Context, claimUID, path string, err error) {
	klog.FromContext(ctx).Error(err, "A record is damaged and was set aside", "claimUID", claimUID, "path", path)
	r.recorder.Quarantined()
	r.events.Node("RecordDamaged", fmt.Sprintf(
		"the record of claim %s cannot be read and was moved to %s: %v. It is made again from the claim as long as a pod uses it; "+
			"its containers go on running, and other claims are not affected. Look at the file, then delete it", claimUID, path, err))
}

// CeilingRefused implements prepare.Reporter.
func (r reports) CeilingRefused(ctx context.Context, claim share.Claim, err error) {
	klog.FromContext(ctx).Info("A claim wants a burst ceiling that it cannot have", "claim", claim, "reason", err.Error())
	r.events.Claim(claim, "BurstCeilingRefused", err.Error()+": the shares keep the ceiling that they have")
}

// CeilingChanged implements prepare.Reporter.
func (r reports) CeilingChanged(ctx context.Context, claim share.Claim, from, to card.Percent) {
	klog.FromContext(ctx).Info("Changed the burst ceiling of a claim", "claim", claim, "uid", claim.UID, "from", ceilingName(from), "to", ceilingName(to))
	r.events.Claim(claim, driver.ReasonCeilingChanged, fmt.Sprintf("the burst ceiling of the claim's shares is %s, and was %s", ceilingName(to), ceilingName(from)))
}

// ceilingName says what a label comes to, for people.
func ceilingName(ceiling card.Percent) string {
	if ceiling == 0 {
		return "what their configuration says"
	}
	return ceiling.String() + " of the card"
}

// heldShares tells the metrics what prepared claims hold.
type heldShares struct{ records *checkpoint.Store }

var _ metrics.Holdings = heldShares{}

// Shares implements metrics.Holdings.
func (h heldShares) Shares() ([]share.Share, error) {
	listing, err := h.records.List()
	if err != nil {
		return nil, err
	}
	var shares []share.Share
	for _, r := range listing.Records {
		shares = append(shares, r.Shares...)
	}
	return shares, nil
}
