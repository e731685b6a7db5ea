// SPDX-License-Identifier: Apache-2.0

// Package local_test judges the manifests of the local cluster without one:
// what they refer to exists, and what they change comes out as meant. Rendering
// them for real is left to the demo and to the end-to-end tests.
package local_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/deployments/static"
	"github.com/tranche-dra/tranche/pkg/card/sim"
)

// kustomization is the part of the format that is used here. Whatever else a
// file says is an error.
type kustomization struct {
	APIVersion         string      `json:"apiVersion"`
	Kind               string      `json:"kind"`
	Resources          []string    `json:"resources"`
	ConfigMapGenerator []configMap `json:"configMapGenerator"`
	Images             []image     `json:"images"`
	Patches            []patch     `json:"patches"`
}

type configMap struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Files     []string `json:"files"`
	Options   struct {
		DisableNameSuffixHash bool `json:"disableNameSuffixHash"`
	} `json:"options"`
}

type image struct {
	Name    string `json:"name"`
	NewName string `json:"newName"`
	NewTag  string `json:"newTag"`
}

type patch struct {
	Path   string `json:"path"`
	Target struct {
		Group     string `json:"group"`
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"target"`
}

func read(t *testing.T, file string) kustomization {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var k kustomization
	require.NoError(t, yaml.UnmarshalStrict(raw, &k), file)
	require.Equal(t, "kustomize.config.k8s.io/v1beta1", k.APIVersion, file)
	require.Equal(t, "Kustomization", k.Kind, file)
	return k
}

func TestKustomizationsLeaveNoManifestOut(t *testing.T) {
	t.Parallel()
	for _, dir := range read(t, "kustomization.yaml").Resources {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			manifests, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
			require.NoError(t, err)
			require.NotEmpty(t, manifests)
			for i := range manifests {
				manifests[i] = filepath.Base(manifests[i])
			}
			listed := read(t, filepath.Join(dir, "Kustomization")).Resources
			require.ElementsMatch(t, manifests, listed)
			require.True(t, slices.IsSorted(listed), "in the order of the directory")
		})
	}
}

func TestTheFleetIsTwoCardsOf24GiB(t *testing.T) {
	t.Parallel()
	k := read(t, "kustomization.yaml")
	require.Len(t, k.ConfigMapGenerator, 1)
	require.Equal(t, []string{"fleet.yaml"}, k.ConfigMapGenerator[0].Files)
	cards, err := sim.New(sim.Options{Path: "fleet.yaml", NodeName: "node-1"}).Cards(t.Context())
	require.NoError(t, err)
	require.Len(t, cards, 2)
	for _, c := range cards {
		require.EqualValues(t, 24*1024, c.Memory)
		require.True(t, c.Shareable() && c.Healthy())
	}
}

// What stands in the comment is to be pasted.
func TestTheFaultInTheCommentWorks(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("fleet.yaml")
	require.NoError(t, err)
	_, commented, found := strings.Cut(string(raw), "\n# cards:\n")
	require.True(t, found)
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.WriteFile(path, []byte("cards:\n"+strings.ReplaceAll(commented, "# ", "")), 0o600))
	faulty, err := sim.New(sim.Options{Path: path, NodeName: "node-1"}).Cards(t.Context())
	require.NoError(t, err)
	cards, err := sim.New(sim.Options{Path: "fleet.yaml", NodeName: "node-1"}).Cards(t.Context())
	require.NoError(t, err)
	require.Len(t, faulty, len(cards))
	for i := range cards {
		require.Equal(t, cards[i].UUID, faulty[i].UUID, "the same card")
	}
	require.True(t, faulty[0].Healthy())
	require.Len(t, faulty[1].Faults, 1)
	require.True(t, faulty[1].Faults[0].Evict)
}

func TestTheDriverIsToldOfTheFleet(t *testing.T) {
	t.Parallel()
	k := read(t, "kustomization.yaml")
	before, after := patched(t, k, "tranche-node")
	require.Len(t, after.Spec.Template.Spec.Containers, len(before.Spec.Template.Spec.Containers))
	was, is := before.Spec.Template.Spec.Containers[0], after.Spec.Template.Spec.Containers[0]

	require.Equal(t, append(was.Args, "--cards=sim", "--sim-fleet=/etc/tranche/fleet.yaml"), is.Args)
	require.Equal(t, corev1.PullNever, is.ImagePullPolicy)
	mounted := is.VolumeMounts[len(is.VolumeMounts)-1]
	require.Equal(t, corev1.VolumeMount{Name: "fleet", MountPath: "/etc/tranche", ReadOnly: true}, mounted)
	volumes := after.Spec.Template.Spec.Volumes
	require.Equal(t, "fleet", volumes[len(volumes)-1].Name)
	require.Equal(t, k.ConfigMapGenerator[0].Name, volumes[len(volumes)-1].ConfigMap.Name)
	require.Equal(t, before.Namespace, k.ConfigMapGenerator[0].Namespace)
	require.True(t, k.ConfigMapGenerator[0].Options.DisableNameSuffixHash)
	require.Equal(t, []image{
		{Name: "tranche/tranche-node", NewName: "localhost/tranche/tranche-node", NewTag: "dev"},
		{Name: "tranche/tranche-arbiter", NewName: "localhost/tranche/tranche-arbiter", NewTag: "dev"},
	}, k.Images)
	require.Equal(t, "tranche/tranche-node:dev", is.Image, "the name that is replaced")
}

func TestNoImageIsPulled(t *testing.T) {
	t.Parallel()
	k := read(t, "kustomization.yaml")
	for _, name := range []string{"tranche-node", "tranche-arbiter"} {
		_, after := patched(t, k, name)
		pod := after.Spec.Template.Spec
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			require.Equal(t, corev1.PullNever, c.ImagePullPolicy, "%s of %s", c.Name, name)
			require.True(t, slices.ContainsFunc(k.Images, func(i image) bool { return i.Name+":dev" == c.Image }), "%s is replaced", c.Image)
		}
	}
}

// patched is the DaemonSet of that name before and after its patch.
func patched(t *testing.T, k kustomization, name string) (before, after *appsv1.DaemonSet) {
	t.Helper()
	require.Len(t, k.Patches, 2)
	i := slices.IndexFunc(k.Patches, func(p patch) bool { return p.Target.Name == name })
	require.GreaterOrEqual(t, i, 0)
	target := k.Patches[i].Target
	require.Equal(t, "apps/DaemonSet", target.Group+"/"+target.Kind)
	objects, err := static.Objects()
	require.NoError(t, err)
	for _, o := range objects {
		if set, ok := o.(*appsv1.DaemonSet); ok && set.Namespace == target.Namespace && set.Name == target.Name {
			before = set
		}
	}
	require.NotNil(t, before, "the patch has no target")

	raw, err := os.ReadFile(k.Patches[i].Path)
	require.NoError(t, err)
	raw, err = yaml.YAMLToJSONStrict(raw)
	require.NoError(t, err)
	operations, err := jsonpatch.DecodePatch(raw)
	require.NoError(t, err)
	document, err := json.Marshal(before)
	require.NoError(t, err)
	document, err = operations.Apply(document)
	require.NoError(t, err)
	after = &appsv1.DaemonSet{}
	require.NoError(t, yaml.UnmarshalStrict(document, after))
	return before, after
}
