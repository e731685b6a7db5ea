// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/deviceclasses"
)

// resourcePrefix of what stands for cards in a pod's limits.
const resourcePrefix = "tranche.dev/"

// asksForCards tells whether the pod is of interest here.
func asksForCards(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || limitOf(pod) != ""
}

// limitOf is the resource by which the pod asks for cards without a claim.
func limitOf(pod *corev1.Pod) string {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for resource := range containers[i].Resources.Limits {
				if strings.HasPrefix(string(resource), resourcePrefix) {
					return string(resource)
				}
			}
		}
	}
	return ""
}

// askOf is the pod with the claims that it uses, which are marked as used even where
// the pod cannot be tried: without it they are not what waits.
func (o *Objects) askOf(pod *corev1.Pod, used map[any]bool) ask {
	ask := ask{kind: "pod", name: name(pod.Namespace, pod.Name), pod: pod.Spec}
	held := 0
	for i := range pod.Spec.ResourceClaims {
		spec, holds, err := o.claimOf(pod, &pod.Spec.ResourceClaims[i])
		switch {
		case err != nil:
			ask.err = cmp.Or(ask.err, err)
		case holds:
			held++
		default:
			used[spec] = true
			ask.claims = append(ask.claims, spec)
		}
	}
	if limit := limitOf(pod); limit != "" {
		ask.err = fmt.Errorf("limits of %s are not simulated: give a claim of class %s", limit, deviceclasses.Card)
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		ask.err = errors.New("node affinity is not simulated: give a nodeSelector")
	}
	if held > 0 && len(ask.claims) > 0 {
		ask.err = errors.New("it holds some of its cards already: where they are is not simulated")
	}
	return ask
}

// claimOf finds the claim that was made for the pod, and whether it holds cards, or
// else what it would be made of.
func (o *Objects) claimOf(pod *corev1.Pod, ref *corev1.PodResourceClaim) (spec *resourceapi.ResourceClaimSpec, holds bool, err error) {
	claim := ref.ResourceClaimName
	for i := range pod.Status.ResourceClaimStatuses {
		if s := &pod.Status.ResourceClaimStatuses[i]; s.Name == ref.Name && s.ResourceClaimName != nil {
			claim = s.ResourceClaimName
		}
	}
	switch {
	case claim != nil:
		for i := range o.Claims {
			c := &o.Claims[i]
			if c.Namespace == pod.Namespace && c.Name == *claim {
				return &c.Spec, c.Status.Allocation != nil, nil
			}
		}
		return nil, false, fmt.Errorf("claim %s is not in the file", *claim)
	case ref.ResourceClaimTemplateName != nil:
		for i := range o.Templates {
			if t := &o.Templates[i]; t.Namespace == pod.Namespace && t.Name == *ref.ResourceClaimTemplateName {
				return &t.Spec.Spec, false, nil
			}
		}
		return nil, false, fmt.Errorf("template %s is not in the file", *ref.ResourceClaimTemplateName)
	}
	return nil, false, fmt.Errorf("claim %s names neither a claim nor a template", ref.Name)
}
