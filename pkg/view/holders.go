// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	stdslices "slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// claimName is a claim's name in its namespace.
type claimName struct{ namespace, name string }

// podSet finds the pods that name a claim.
type podSet map[claimName][]*corev1.Pod

func holdersOf(pods []corev1.Pod) podSet {
	set := podSet{}
	for i := range pods {
		pod := &pods[i]
		seen := map[string]bool{}
		for name := range resourceclaim.PodClaims(pod) {
			if !seen[name] { // a pod may list a claim twice
				seen[name] = true
				key := claimName{pod.Namespace, name}
				set[key] = append(set[key], pod)
			}
		}
	}
	return set
}

// of lists who holds the request of the claim: the pods for which the claim is
// reserved, directly or through their group, and what it is reserved for beyond
// those.
func (s podSet) of(claim *resourceapi.ResourceClaim, request string) []Holder {
	var holders []Holder
	shown := map[string]bool{}
	for _, pod := range s[claimName{claim.Namespace, claim.Name}] {
		if !resourceclaim.IsReservedForPod(pod, claim, true) {
			continue
		}
		shown[string(pod.UID)] = true
		holders = append(holders, Holder{
			Name: pod.Name, UID: string(pod.UID), Phase: pod.Status.Phase,
			Containers: containersOf(pod, claim.Name, request),
		})
	}
	byGroup := len(holders) > 0 // of a group, its pods are shown
	for _, r := range claim.Status.ReservedFor {
		if shown[string(r.UID)] || r.APIGroup != "" && byGroup {
			continue
		}
		holders = append(holders, Holder{Resource: resourceOf(r), Name: r.Name, UID: string(r.UID)})
	}
	stdslices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return holders
}

// resourceOf is empty for pods, else "resource.group".
func resourceOf(r resourceapi.ResourceClaimConsumerReference) string {
	switch {
	case r.APIGroup == "" && r.Resource == "pods":
		return ""
	case r.APIGroup == "":
		return r.Resource
	}
	return r.Resource + "." + r.APIGroup
}

// containersOf lists the containers of the pod that get the request of the claim.
func containersOf(pod *corev1.Pod, claim, request string) []string {
	entries := map[string]bool{}
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if name, _, err := resourceclaim.Name(pod, entry); err == nil && name != nil && *name == claim {
			entries[entry.Name] = true
		}
	}
	var names []string
	for _, c := range stdslices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if asksFor(c.Resources.Claims, entries, request) || asksByLimit(pod, c.Name, claim, request) {
			names = append(names, c.Name)
		}
	}
	return names
}

// asksFor tells whether one of the container's claims is among the entries and
// names the request, or all of them.
func asksFor(claims []corev1.ResourceClaim, entries map[string]bool, request string) bool {
	return stdslices.ContainsFunc(claims, func(c corev1.ResourceClaim) bool {
		return entries[c.Name] && (c.Request == "" || c.Request == resourceclaim.BaseRequestRef(request))
	})
}

// asksByLimit tells whether the container got the request through its limits:
// the scheduler made the claim then.
func asksByLimit(pod *corev1.Pod, container, claim, request string) bool {
	status := pod.Status.ExtendedResourceClaimStatus
	return status != nil && status.ResourceClaimName == claim &&
		stdslices.ContainsFunc(status.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
			return m.ContainerName == container && m.RequestName == resourceclaim.BaseRequestRef(request)
		})
}
