// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	// oldestKubernetes allocates shares rightly.
	oldestKubernetes = "1.36.0-0"
	remedyApply      = "kubectl apply -f deployments/static -f deviceclasses"
)

// APIServer checks that the API server answers and is of a version that can
// share cards.
type APIServer struct {
	Client kubernetes.Interface
	// Forced says that the driver shares cards whatever the version.
	Forced bool
}

// Examine implements Examiner.
func (a APIServer) Examine(ctx context.Context) []Finding {
	info, err := discovery.ToServerVersionInterfaceWithContext(a.Client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return one(Problem, fmt.Sprintf("ask API server for its version: %v", err), "see whether the API server runs, and whether pods of this node reach it")
	}
	switch old := older(info.GitVersion, oldestKubernetes); {
	case old && a.Forced:
		return one(Warning, "Kubernetes "+info.GitVersion+" allocates shares wrongly, and cards are shared all the same: forceOldKubernetes is set", "upgrade to 1.36 or newer")
	case old:
		return one(Problem, "Kubernetes "+info.GitVersion+" allocates shares wrongly: cards are published whole", "upgrade to 1.36 or newer")
	}
	return one(OK, "Kubernetes "+info.GitVersion+" answers", "")
}

// Slices checks that the node's cards are published, each of them, and as what
// they are.
type Slices struct {
	Client       kubernetes.Interface
	Node, Driver string
	Cards        card.Lister
}

// Examine implements Examiner.
func (s Slices) Examine(ctx context.Context) []Finding {
	list, err := s.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: s.Node, resourceapi.ResourceSliceSelectorDriver: s.Driver,
	}.String()})
	if err != nil {
		return cannotLook("the node's ResourceSlices", "resourceslices", err)
	}
	if len(list.Items) == 0 {
		return one(Problem, "no ResourceSlice of this node: the scheduler knows none of its cards", remedyLog)
	}
	cards, err := s.Cards.Cards(ctx)
	if err != nil {
		return one(Skipped, "whether the published cards are those of the node is unknown, for cards cannot be listed", "")
	}
	published := devices(list.Items)
	var found []Finding
	for _, c := range cards {
		device, there := published[c.DeviceName()]
		delete(published, c.DeviceName())
		switch {
		case !there:
			found = append(found, Finding{Level: Problem, Seen: fmt.Sprintf("card %s is not published", c.UUID), Remedy: "events on the Node, and the driver's log, say why"})
		case c.Shareable() && (device.AllowMultipleAllocations == nil || !*device.AllowMultipleAllocations):
			found = append(found, Finding{
				Level: Problem, Seen: fmt.Sprintf("card %s is published, but not for sharing", c.UUID),
				Remedy: "enable the feature gate DRAConsumableCapacity, or upgrade Kubernetes: an event on the Node says which",
			})
		}
	}
	for name := range published {
		found = append(found, Finding{Level: Problem, Seen: "device " + name + " is published, and the node has no such card", Remedy: remedyLog})
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Seen, b.Seen) })
	if found == nil {
		return one(OK, fmt.Sprintf("%s published in %s", number(len(cards), "card"), number(len(list.Items), "slice")), "")
	}
	return found
}

// devices of the newest generation, by name.
func devices(items []resourceapi.ResourceSlice) map[string]resourceapi.Device {
	var newest int64
	for i := range items {
		newest = max(newest, items[i].Spec.Pool.Generation)
	}
	out := map[string]resourceapi.Device{}
	for i := range items {
		if items[i].Spec.Pool.Generation != newest {
			continue
		}
		for _, d := range items[i].Spec.Devices {
			out[d.Name] = d
		}
	}
	return out
}

// Classes checks that the DeviceClasses of these names are there.
type Classes struct {
	Client kubernetes.Interface
	Names  []string
}

// Examine implements Examiner.
func (c Classes) Examine(ctx context.Context) []Finding {
	list, err := c.Client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cannotLook("DeviceClasses", "deviceclasses", err)
	}
	missing := missingOf(c.Names, list.Items, nameOf)
	switch {
	case len(missing) == len(c.Names):
		return one(Problem, "none of the DeviceClasses is there: no claim can name one", remedyApply)
	case len(missing) > 0:
		return one(Warning, "missing: "+strings.Join(missing, ", "), remedyApply)
	default:
		return one(OK, fmt.Sprintf("all %d are there", len(c.Names)), "")
	}
}

// Policies checks that the admission policies, and their bindings, are there.
type Policies struct {
	Client   kubernetes.Interface
	Policies []string
	Bindings []string
}

// Examine implements Examiner.
func (p Policies) Examine(ctx context.Context) []Finding {
	api := p.Client.AdmissionregistrationV1()
	policies, err := api.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cannotLook("admission policies", "validatingadmissionpolicies", err)
	}
	bindings, err := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cannotLook("bindings of admission policies", "validatingadmissionpolicybindings", err)
	}
	missing := missingOf(p.Policies, policies.Items, nameOf)
	for _, name := range missingOf(p.Bindings, bindings.Items, nameOf) {
		missing = append(missing, "the binding "+name)
	}
	if len(missing) > 0 {
		return one(Warning, "missing: "+strings.Join(missing, ", ")+": wrong requests wait for ever instead of being refused, and one node can publish cards for another", remedyApply)
	}
	return one(OK, fmt.Sprintf("all %d are there and bound", len(p.Policies)), "")
}

func nameOf[T any, P interface {
	*T
	GetName() string
}](object P) string {
	return object.GetName()
}

// missingOf are the wanted names that no object has.
func missingOf[T any](wanted []string, objects []T, name func(*T) string) []string {
	have := map[string]bool{}
	for i := range objects {
		have[name(&objects[i])] = true
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(w string) bool { return have[w] })
}

// cannotLook tells apart what may not be read from what cannot. Neither is left
// out in silence: what nobody looked at may be what is wrong.
func cannotLook(what, resource string, err error) []Finding {
	if apierrors.IsForbidden(err) {
		return one(Warning, "not allowed to look at "+what+" as this user: whether they are there is unknown",
			"see for yourself: kubectl get "+resource+"; or apply deployments/static again, which lets the driver's pod look")
	}
	return one(Problem, fmt.Sprintf("read %s: %v", what, err), "see whether the API server runs, and whether this user may read them")
}
