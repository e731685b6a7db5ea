// SPDX-License-Identifier: Apache-2.0

// Package examples_test judges the examples without a cluster: they are
// decoded strictly, pass the admission policies, fit together in themselves and
// on the two cards that they are made for. The end-to-end tests apply each.
package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	k8sadmission "k8s.io/apiserver/pkg/admission"

	"github.com/tranche-dra/tranche/deployments/static"
	"github.com/tranche-dra/tranche/deployments/static/admission"
	"github.com/tranche-dra/tranche/deviceclasses"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	memoryPerCard card.MiB = 24 << 10
	// gpuImage has programs that use a card, image has a shell.
	gpuImage = "localhost/tranche/client:dev"
	image    = "localhost/tranche/busybox:dev"
	extended = "tranche.dev/gpu"
)

// examples are all objects of each folder.
func examples(t *testing.T) map[string][]runtime.Object {
	t.Helper()
	folders, err := filepath.Glob("*/README.md")
	require.NoError(t, err)
	found := map[string][]runtime.Object{}
	for _, readme := range folders {
		name := filepath.Dir(readme)
		files, err := filepath.Glob(filepath.Join(name, "*.yaml"))
		require.NoError(t, err)
		require.NotEmpty(t, files, name)
		for _, file := range files {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			objects, err := static.Decode(raw)
			require.NoError(t, err, file)
			found[name] = append(found[name], objects...)
		}
	}
	require.NotEmpty(t, found)
	return found
}

// pods is what an object runs: the pod's spec and how many there may be at once.
func pods(object runtime.Object) (spec *corev1.PodSpec, most int) {
	switch o := object.(type) {
	case *corev1.Pod:
		return &o.Spec, 1
	case *batchv1.Job:
		return &o.Spec.Template.Spec, 1
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, int(*o.Spec.Replicas) + o.Spec.Strategy.RollingUpdate.MaxSurge.IntValue()
	}
	return nil, 0
}

func templates(objects []runtime.Object) map[string]*resourceapi.ResourceClaimTemplate {
	byName := map[string]*resourceapi.ResourceClaimTemplate{}
	for _, o := range objects {
		if template, ok := o.(*resourceapi.ResourceClaimTemplate); ok {
			byName[template.Name] = template
		}
	}
	return byName
}

func TestEveryFolderIsListed(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	all := examples(t)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		require.Contains(t, all, e.Name(), "it has a README and manifests")
		require.Contains(t, string(index), "| ["+e.Name()+"]("+e.Name()+") |")
		readme, err := os.ReadFile(filepath.Join(e.Name(), "README.md"))
		require.NoError(t, err)
		require.Contains(t, string(readme), "kubectl apply -f demo/examples/"+e.Name()+"\n")
	}
}

func TestNamesDoNotClash(t *testing.T) {
	t.Parallel()
	owner := map[string]string{}
	for name, objects := range examples(t) {
		for _, o := range objects {
			accessor, err := meta.Accessor(o)
			require.NoError(t, err)
			require.Empty(t, accessor.GetNamespace(), "examples go where kubectl is")
			id := o.GetObjectKind().GroupVersionKind().Kind + "/" + accessor.GetName()
			require.NotContains(t, owner, id, "%s and %s", name, owner[id])
			owner[id] = name
		}
	}
}

func TestPodsUseTheClaimsThatAreThere(t *testing.T) {
	t.Parallel()
	for name, objects := range examples(t) {
		unused := templates(objects)
		known := templates(objects)
		for _, o := range objects {
			spec, most := pods(o)
			if most == 0 {
				continue
			}
			declared := map[string]bool{}
			for _, c := range spec.ResourceClaims {
				require.Contains(t, known, *c.ResourceClaimTemplateName, name)
				delete(unused, *c.ResourceClaimTemplateName)
				declared[c.Name] = false
			}
			for _, c := range append(spec.InitContainers, spec.Containers...) {
				_, extends := c.Resources.Limits[extended]
				if len(c.Resources.Claims) > 0 || extends {
					require.Equal(t, gpuImage, c.Image, name)
				} else {
					require.Equal(t, image, c.Image, name)
				}
				for _, claim := range c.Resources.Claims {
					require.Contains(t, declared, claim.Name, name)
					declared[claim.Name] = true
				}
			}
			for claim, used := range declared {
				require.True(t, used, "%s: no container uses claim %s", name, claim)
			}
			require.EqualValues(t, 1, *spec.TerminationGracePeriodSeconds, "%s: shells do not listen to SIGTERM", name)
		}
		require.Empty(t, unused, name)
	}
}

func TestClaimsAreAdmitted(t *testing.T) {
	t.Parallel()
	objects, err := static.Objects()
	require.NoError(t, err)
	var policies []*admission.Policy
	for _, o := range objects {
		if p, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
			compiled, err := admission.Compile(p)
			require.NoError(t, err)
			policies = append(policies, compiled)
		}
	}
	require.Len(t, policies, 2)
	for name, objects := range examples(t) {
		for _, template := range templates(objects) {
			for _, p := range policies {
				denials, err := p.Review(t.Context(), admission.Request{
					Operation: k8sadmission.Create, Object: template,
					Resource: resourceapi.SchemeGroupVersion.WithResource("resourceclaimtemplates"),
				})
				require.NoError(t, err)
				require.Empty(t, denials, name)
			}
		}
	}
}

// The node takes what the examples' classes and amounts say together.
func TestClaimsCanBePrepared(t *testing.T) {
	t.Parallel()
	classes := map[string]*v1alpha1.ShareConfig{}
	all, err := deviceclasses.All()
	require.NoError(t, err)
	for _, c := range all {
		config := v1alpha1.NewShareConfig()
		for _, layer := range c.Spec.Config {
			decoded, err := v1alpha1.Decode(layer.Opaque.Parameters.Raw)
			require.NoError(t, err)
			config = v1alpha1.Merge(config, decoded)
		}
		classes[c.Name] = config
	}
	for name, objects := range examples(t) {
		for _, template := range templates(objects) {
			for _, r := range template.Spec.Spec.Devices.Requests {
				require.Contains(t, classes, r.Exactly.DeviceClassName, name)
				layers := []*v1alpha1.ShareConfig{classes[r.Exactly.DeviceClassName]}
				for _, layer := range template.Spec.Spec.Devices.Config {
					if len(layer.Requests) == 0 || slices.Contains(layer.Requests, r.Name) {
						decoded, err := v1alpha1.Decode(layer.Opaque.Parameters.Raw)
						require.NoError(t, err, name)
						layers = append(layers, decoded)
					}
				}
				config := v1alpha1.Merge(layers...)
				v1alpha1.SetDefaults(config, v1alpha1.DefaultPolicy)
				limits, _ := amounts(r.Exactly)
				require.Empty(t, config.ValidateMerged(limits, nil), name)
			}
		}
	}
}

// Placed first fit, as the scheduler does, each example finds room, a rolling
// update included.
func TestEachFitsOnTwoCards(t *testing.T) {
	t.Parallel()
	for name, objects := range examples(t) {
		var held []share.Share
		known := templates(objects)
		for _, o := range objects {
			spec, most := pods(o)
			for i := range most {
				for _, c := range spec.ResourceClaims {
					for _, r := range known[*c.ResourceClaimTemplateName].Spec.Spec.Devices.Requests {
						held = place(t, held, fmt.Sprint(name, len(held), i), r.Exactly)
					}
				}
				for _, c := range spec.Containers {
					if q, ok := c.Resources.Limits[extended]; ok {
						held = place(t, held, fmt.Sprint(name, len(held), i), &resourceapi.ExactDeviceRequest{DeviceClassName: deviceclasses.Card, Count: q.Value()})
					}
				}
			}
		}
		require.NotEmpty(t, held, "%s holds no card", name)
		if name == "three-pods-one-card" {
			for _, s := range held {
				require.Equal(t, held[0].Card, s.Card, "the name promises one card")
			}
		}
	}
}

// amounts is what a request asks of each card, and whether it is a whole one.
func amounts(r *resourceapi.ExactDeviceRequest) (share.Limits, bool) {
	if r.Capacity == nil {
		return share.Limits{Cores: card.WholeCompute, Memory: memoryPerCard}, true
	}
	get := func(k resourceapi.QualifiedName) int64 { q := r.Capacity.Requests[k]; return q.Value() }
	return share.Limits{
		Cores: card.Percent(get("cores")), OfflineCores: card.Percent(get("offlineCores")), Memory: card.MiB(get("memory") >> 20),
	}, false
}

func place(t *testing.T, held []share.Share, uid string, r *resourceapi.ExactDeviceRequest) []share.Share {
	t.Helper()
	limits, whole := amounts(r)
	count := max(1, int(r.Count))
	for _, c := range []card.UUID{"GPU-0", "GPU-1"} {
		s := share.Share{
			ID:   share.ID{Claim: share.Claim{UID: uid, Name: uid}, Device: strings.ToLower(string(c)), ShareID: uid},
			Card: c, Limits: limits, Whole: whole,
		}
		total := share.CapacityOf(card.Card{Memory: memoryPerCard}, v1alpha1.DefaultSlotsPerCard)
		if count > 0 && share.Fit(total, held, s) == nil {
			held = append(held, s)
			count--
		}
	}
	require.Zero(t, count, "no room for %s", uid)
	return held
}
