// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
)

const (
	// patience is for how long a claim is tried again that could not be adjusted, or
	// that is just being prepared: kubelet gives a call 45 s.
	patience = time.Minute
	// maxPending bounds the claims for which that holds. Most of them are on other
	// nodes.
	maxPending = 1024
)

// Records are the claims that are prepared here.
type Records interface {
	List() (checkpoint.Listing, error)
}

// Adjuster changes running shares.
type Adjuster interface {
	// Adjust gives the shares of a claim what its labels ask for, and returns false
	// where the claim is not prepared here.
	Adjust(ctx context.Context, uid string, labels map[string]string) (prepared bool, err error)
}

// Ceilings lets the burst ceilings of this node's shares follow their claims'
// labels.
type Ceilings struct {
	objects  Objects
	records  Records
	adjuster Adjuster

	// seen are the claims of this node that the list under way has named.
	seen map[string]bool
	// pending are claims to be tried again, by UID.
	pending map[string]pending
}

// pending is what a claim's labels say, and until when it is tried.
type pending struct {
	labels map[string]string
	until  time.Time
}

// NewCeilings makes Ceilings. objects are the ResourceClaims of the cluster.
func NewCeilings(objects Objects, records Records, adjuster Adjuster) *Ceilings {
	return &Ceilings{objects: objects, records: records, adjuster: adjuster, pending: map[string]pending{}}
}

// Run follows the labels until ctx ends.
func (c *Ceilings) Run(ctx context.Context) {
	follower{c.objects, metav1.ListOptions{LabelSelector: v1alpha1.LabelBurstCeiling}, c}.run(ctx)
}

func (c *Ceilings) listing() { c.seen = map[string]bool{} }

// listed takes the ceiling away that a claim has on this node and asks for no more.
func (c *Ceilings) listed(ctx context.Context) {
	defer func() { c.seen = nil }()
	listing, err := c.records.List()
	if err != nil {
		c.failed(ctx, err)
		return
	}
	for _, record := range listing.Records {
		if record.BurstCeiling != 0 && !c.seen[record.Claim.UID] {
			c.adjust(ctx, record.Claim.UID, nil)
		}
	}
}

func (c *Ceilings) is(ctx context.Context, claim *metav1.PartialObjectMetadata) {
	prepared := c.adjust(ctx, string(claim.UID), claim.Labels)
	switch {
	case prepared && c.seen != nil:
		c.seen[string(claim.UID)] = true
	case !prepared && c.seen == nil:
		// It may be one that is being prepared, from an older version of it.
		c.later(string(claim.UID), claim.Labels)
	}
}

// gone takes the ceiling away: the label was removed, or the claim, whose last
// labels the object has.
func (c *Ceilings) gone(ctx context.Context, claim *metav1.PartialObjectMetadata) {
	if !c.adjust(ctx, string(claim.UID), nil) {
		c.later(string(claim.UID), nil)
	}
}

func (c *Ceilings) failed(ctx context.Context, err error) {
	klog.FromContext(ctx).Info("Cannot follow the burst ceilings of claims, trying again", "label", v1alpha1.LabelBurstCeiling, "err", err)
}

func (c *Ceilings) again(ctx context.Context) {
	now := time.Now()
	for uid, p := range c.pending {
		prepared, err := c.adjuster.Adjust(ctx, uid, p.labels)
		if prepared && err == nil || now.After(p.until) {
			delete(c.pending, uid)
		}
	}
}

// adjust passes the labels on, and returns whether the claim is one of this node.
func (c *Ceilings) adjust(ctx context.Context, uid string, labels map[string]string) (prepared bool) {
	delete(c.pending, uid)
	prepared, err := c.adjuster.Adjust(ctx, uid, labels)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot change the burst ceiling of a claim, trying again", "claimUID", uid)
		c.later(uid, labels)
	}
	return prepared
}

func (c *Ceilings) later(uid string, labels map[string]string) {
	if len(c.pending) < maxPending {
		c.pending[uid] = pending{labels, time.Now().Add(patience)}
	}
}
