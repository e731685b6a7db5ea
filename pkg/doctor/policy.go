// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/labels"
)

// DefaultPolicy says which policy shares of the node get that name none, and who
// chose it.
type DefaultPolicy struct {
	Client     kubernetes.Interface
	Node       string
	Configured labels.Configured
}

// Examine implements Examiner.
func (d DefaultPolicy) Examine(ctx context.Context) []Finding {
	list, err := d.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, d.Node).String(),
	})
	if err != nil {
		return cannotLook("the node's labels", "nodes --show-labels", err)
	}
	var said map[string]string
	if len(list.Items) > 0 {
		said = list.Items[0].Labels
	}
	choice, err := labels.Choose(said, d.Configured)
	seen := fmt.Sprintf("%s, for shares that name none (%s)", choice.Policy, choice.Why)
	if err != nil {
		return one(Warning, fmt.Sprintf("%s: %v", seen, err), "give the label one of these, or remove it: kubectl label node "+d.Node+" "+v1alpha1.LabelDefaultPolicy+"-")
	}
	return one(OK, seen, "")
}
