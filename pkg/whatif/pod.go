// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// resourcePrefix of what stands for cards in a pod's limits.
const resourcePrefix = "tranche.dev/"

// askOf is the pod with the claims that it uses, which are marked as used even where
// the pod cannot be tried: without it they are not what waits.
func (o *Objects) askOf(pod *corev1.Pod, known classes, used map[any]bool) ask {
	ask := ask{kind: "pod", name: name(pod.Namespace, pod.Name), pod: pod.Spec}
	held := 0
	take := func(spec *resourceapi.ResourceClaimSpec, holds bool, err error) {
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
	for i := range pod.Spec.ResourceClaims {
		take(o.claimOf(pod, &pod.Spec.ResourceClaims[i]))
	}
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil {
		take(o.made(pod.Namespace, made.ResourceClaimName))
	} else if spec, err := known.limitsOf(pod); err != nil || len(spec.Devices.Requests) > 0 {
		take(spec, false, err)
	}
	if len(ask.claims) == 0 || ask.err != nil {
		return ask
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		ask.err = errors.New("node affinity is not simulated: give a nodeSelector")
	}
	if held > 0 {
		ask.err = errors.New("it holds some of its cards already: where they are is not simulated")
	}
	return ask
}

// limitsOf the pod are the claim that the scheduler makes of them, with a request for
// each container and resource that stands for devices.
func (c classes) limitsOf(pod *corev1.Pod) (*resourceapi.ResourceClaimSpec, error) {
	spec := &resourceapi.ResourceClaimSpec{}
	count := func(limits corev1.ResourceList) error {
		for _, resource := range slices.Sorted(maps.Keys(limits)) {
			class, quantity := c.byResource.GetDeviceClass(resource), limits[resource]
			switch {
			case quantity.IsZero():
			case class != nil:
				spec.Devices.Requests = append(spec.Devices.Requests, resourceapi.DeviceRequest{
					Name: string(resource), Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class.Name, Count: quantity.Value()},
				})
			case strings.HasPrefix(string(resource), resourcePrefix):
				return fmt.Errorf("limit of %s: no device class has it as its extended resource", resource)
			}
		}
		return nil
	}
	for i := range pod.Spec.InitContainers {
		if err := count(pod.Spec.InitContainers[i].Resources.Limits); err != nil {
			return nil, err
		}
	}
	if len(spec.Devices.Requests) > 0 { // they may share with the containers that follow
		return nil, fmt.Errorf("limit of %s: those of init containers are not simulated", spec.Devices.Requests[0].Name)
	}
	for i := range pod.Spec.Containers {
		if err := count(pod.Spec.Containers[i].Resources.Limits); err != nil {
			return nil, err
		}
	}
	return spec, nil
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
		return o.made(pod.Namespace, *claim)
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

// made finds the claim, and tells whether it holds cards.
func (o *Objects) made(namespace, name string) (spec *resourceapi.ResourceClaimSpec, holds bool, err error) {
	for i := range o.Claims {
		if c := &o.Claims[i]; c.Namespace == namespace && c.Name == name {
			return &c.Spec, c.Status.Allocation != nil, nil
		}
	}
	return nil, false, fmt.Errorf("claim %s is not in the file", name)
}
