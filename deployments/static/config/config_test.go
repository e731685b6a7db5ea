// SPDX-License-Identifier: Apache-2.0

// Package config_test judges the example of a NodeConfig and the patch that
// gives it to the driver, without a cluster.
package config_test

import (
	"encoding/json"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/deployments/static"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
)

const file = "nodeconfig.yaml"

func TestTheExampleSaysWhatTheDefaultsAre(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	got, err := v1alpha1.DecodeNodeConfig(raw)
	require.NoError(t, err)
	want := v1alpha1.NewNodeConfig()
	for _, config := range []*v1alpha1.NodeConfig{got, want} {
		config.NodeName = "node-1"
		v1alpha1.SetNodeDefaults(config)
		require.Empty(t, config.Validate(nil))
	}
	asJSON := func(config *v1alpha1.NodeConfig) string {
		raw, err := json.Marshal(config)
		require.NoError(t, err)
		return string(raw)
	}
	require.JSONEq(t, asJSON(want), asJSON(got))
}

func TestTheExampleHasEveryField(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var got, want []string
	for _, line := range regexp.MustCompile(`(?m)^(?:# )?([a-z][A-Za-z]*): `).FindAllStringSubmatch(string(raw), -1) {
		got = append(got, line[1])
	}
	for field := range reflect.TypeFor[v1alpha1.NodeConfig]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			want = append(want, name)
		}
	}
	require.Equal(t, append([]string{"apiVersion", "kind"}, want...), got, "in the order of the type")
}

func TestThePatchMountsTheFileThatTheFlagNames(t *testing.T) {
	t.Parallel()
	pod := patched(t).Spec.Template.Spec
	container := pod.Containers[0]
	flag, found := strings.CutPrefix(container.Args[len(container.Args)-1], "--config=")
	require.True(t, found)
	require.Equal(t, file, path.Base(flag), "the key that --from-file makes of the file")

	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path.Dir(flag) })
	require.GreaterOrEqual(t, mount, 0)
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == container.VolumeMounts[mount].Name })
	require.GreaterOrEqual(t, volume, 0)

	raw, err := os.ReadFile("patch.yaml")
	require.NoError(t, err)
	require.Contains(t, string(raw), "create configmap "+pod.Volumes[volume].ConfigMap.Name+" --from-file deployments/static/config/"+file+"\n")
}

// patched is the DaemonSet after the patch.
func patched(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	objects, err := static.Objects()
	require.NoError(t, err)
	i := slices.IndexFunc(objects, func(o runtime.Object) bool { set, is := o.(*appsv1.DaemonSet); return is && set.Name == "tranche-node" })
	require.GreaterOrEqual(t, i, 0)
	document, err := json.Marshal(objects[i])
	require.NoError(t, err)

	raw, err := os.ReadFile("patch.yaml")
	require.NoError(t, err)
	raw, err = yaml.YAMLToJSONStrict(raw)
	require.NoError(t, err)
	operations, err := jsonpatch.DecodePatch(raw)
	require.NoError(t, err)
	document, err = operations.Apply(document)
	require.NoError(t, err)
	var set appsv1.DaemonSet
	require.NoError(t, yaml.UnmarshalStrict(document, &set))
	return &set
}
