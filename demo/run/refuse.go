// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed wrong-claim.yaml
var wrongClaim []byte

// refuse shows what the API server says to a claim that nobody could satisfy.
func (d *demo) refuse(ctx context.Context) error {
	d.say.head("Ask for 130 % of a card: refused at once, with what would be right.",
		"kubectl create --dry-run=server -f demo/run/wrong-claim.yaml")
	var claim resourceapi.ResourceClaim
	if err := yaml.UnmarshalStrict(wrongClaim, &claim); err != nil {
		return fmt.Errorf("read wrong-claim.yaml: %w", err)
	}
	var said string
	// Policies that were just applied take effect after a moment.
	err := d.await(ctx, "a wrong claim to be refused", func(ctx context.Context) (string, error) {
		_, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).
			Create(ctx, &claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		var status apierrors.APIStatus
		switch {
		case err == nil:
			return "the API server accepts it", nil
		case errors.As(err, &status) && isRefusal(status.Status().Reason):
			said = status.Status().Message
			return "", nil
		}
		return "", fmt.Errorf("create claim %s: %w", claim.Name, err)
	})
	if err != nil {
		return err
	}
	d.say.text(said)
	return nil
}

func isRefusal(r metav1.StatusReason) bool {
	return r == metav1.StatusReasonForbidden || r == metav1.StatusReasonInvalid
}
