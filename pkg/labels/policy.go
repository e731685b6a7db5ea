// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Reasons of events on the node.
const (
	// ReasonChanged is no warning: the label says something else, and that holds.
	ReasonChanged    = "DefaultPolicyChanged"
	reasonRefused    = "DefaultPolicyRefused"
	reasonUnreadable = "NodeLabelsUnreadable"
)

// Events tells the administrator of the node.
type Events interface {
	Node(reason, message string)
}

// Configured is the default policy that the process was started with.
type Configured struct {
	Policy share.Policy
	// By says where it comes from, for people: a flag, a file, or nobody.
	By string
}

// Choice is the default policy that holds on a node.
type Choice struct {
	Policy share.Policy
	// Why says what it comes from.
	Why string
}

// Choose tells which default policy a node with those labels has. A label that
// means nothing is an error, and what is configured holds.
func Choose(labels map[string]string, configured Configured) (Choice, error) {
	fallback := Choice{configured.Policy, configured.By}
	value, said := labels[v1alpha1.LabelDefaultPolicy]
	if !said {
		return fallback, nil
	}
	policy, err := v1alpha1.PolicyOfLabel(value)
	if err != nil {
		return fallback, err
	}
	return Choice{policy, "the node's label " + v1alpha1.LabelDefaultPolicy}, nil
}

// DefaultPolicy is the policy of shares that name none, on one node.
type DefaultPolicy struct {
	objects    Objects
	node       string
	configured Configured
	events     Events

	mu     sync.Mutex
	choice Choice // guarded by mu; without a policy: not known yet
	// refused is what was told last; only Run touches it, as it does found.
	refused string
	found   bool
}

// NewDefaultPolicy makes the default policy of a node. objects are the Nodes of
// the cluster. Until Run has read the node's labels it is not known.
func NewDefaultPolicy(objects Objects, node string, configured Configured, events Events) *DefaultPolicy {
	return &DefaultPolicy{objects: objects, node: node, configured: configured, events: events}
}

// Policy is the one for a share that is prepared now. The error wraps
// claims.ErrDefaultUnknown.
func (d *DefaultPolicy) Policy(share.ID) (claims.Default, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.choice.Policy == "" {
		return claims.Default{}, fmt.Errorf("%w: the labels of node %s have not been read: see whether pods of this node reach the API server",
			claims.ErrDefaultUnknown, d.node)
	}
	return claims.Default(d.choice), nil
}

// Run follows the node's label until ctx ends.
func (d *DefaultPolicy) Run(ctx context.Context) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, d.node).String()}
	follower{d.objects, only, d}.run(ctx)
}

func (d *DefaultPolicy) listing() { d.found = false }

// listed takes a node that the API server does not have for one without labels.
func (d *DefaultPolicy) listed(ctx context.Context) {
	if !d.found {
		d.choose(ctx, nil)
	}
}

func (d *DefaultPolicy) is(ctx context.Context, node *metav1.PartialObjectMetadata) {
	d.found = true
	d.choose(ctx, node.Labels)
}

// gone keeps what is known: a node that is registered anew has its labels again.
func (*DefaultPolicy) gone(context.Context, *metav1.PartialObjectMetadata) {}

func (*DefaultPolicy) again(context.Context) {}

// failed leaves the policy as it is; where nobody lets the labels be read, what is
// configured holds.
func (d *DefaultPolicy) failed(ctx context.Context, err error) {
	klog.FromContext(ctx).Info("Cannot follow this node's labels, trying again", "label", v1alpha1.LabelDefaultPolicy, "err", err)
	if !apierrors.IsForbidden(err) {
		return
	}
	if _, unknown := d.Policy(share.ID{}); unknown != nil {
		d.events.Node(reasonUnreadable, fmt.Sprintf("the label %s cannot be read, and shares that name no policy get %s (%s): let tranche-node list and watch nodes: %v",
			v1alpha1.LabelDefaultPolicy, d.configured.Policy, d.configured.By, err))
		d.set(ctx, Choice{d.configured.Policy, d.configured.By})
	}
}

func (d *DefaultPolicy) choose(ctx context.Context, labels map[string]string) {
	choice, err := Choose(labels, d.configured)
	refused := ""
	if err != nil {
		refused = fmt.Sprintf("%v: shares that name no policy get %s (%s)", err, choice.Policy, choice.Why)
	}
	if refused != "" && refused != d.refused {
		klog.FromContext(ctx).Info("The node's label names no policy", "reason", refused)
		d.events.Node(reasonRefused, refused)
	}
	d.mu.Lock()
	changed := d.choice.Policy != "" && d.choice != choice
	d.mu.Unlock()
	if refused == "" && (changed || d.refused != "") {
		d.events.Node(ReasonChanged, fmt.Sprintf("shares that name no policy get %s (%s)", choice.Policy, choice.Why))
	}
	d.refused = refused
	d.set(ctx, choice)
}

func (d *DefaultPolicy) set(ctx context.Context, choice Choice) {
	d.mu.Lock()
	changed := d.choice != choice
	d.choice = choice
	d.mu.Unlock()
	if changed {
		klog.FromContext(ctx).Info("Default policy of shares that name none", "policy", choice.Policy, "by", choice.Why)
	}
}
