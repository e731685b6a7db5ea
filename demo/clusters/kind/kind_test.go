// SPDX-License-Identifier: Apache-2.0

// Package kind_test judges what is here without Docker and without kind.
package kind_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kind/pkg/apis/config/defaults"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
)

const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Clean(path))
	require.NoError(t, err)
	return string(raw)
}

// The file is decoded as kind does it: strictly, by the same library.
func TestClusterIsOneThatKindTakes(t *testing.T) {
	t.Parallel()
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(read(t, "cluster.yaml"))))
	decoder.KnownFields(true)
	var cluster v1alpha4.Cluster
	require.NoError(t, decoder.Decode(&cluster))
	require.Equal(t, "kind.x-k8s.io/v1alpha4", cluster.APIVersion)
	require.Equal(t, "Cluster", cluster.Kind)
	require.Len(t, cluster.Nodes, 3)
	require.Equal(t, v1alpha4.ControlPlaneRole, cluster.Nodes[0].Role)
	for _, n := range cluster.Nodes {
		require.Equal(t, defaults.Image, n.Image, "the node image of the kind release that go.mod names")
	}
	require.Contains(t, defaults.Image, ":v1.37.", "shares need Kubernetes 1.36 or newer without feature gates")
	require.Empty(t, cluster.FeatureGates)
}

func TestScriptRefersToWhatIsThere(t *testing.T) {
	t.Parallel()
	script := read(t, "up.sh")
	paths := regexp.MustCompile(`(?:demo|deployments)/[\w./-]+`).FindAllString(script, -1)
	require.NotEmpty(t, paths)
	for _, p := range paths {
		_, err := os.Stat(filepath.Join(root, p))
		require.NoError(t, err)
	}
	var cluster v1alpha4.Cluster
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "cluster.yaml")), &cluster))
	require.Contains(t, script, "--name "+cluster.Name+" ")
	require.Contains(t, script, "kind-"+cluster.Name+" ")

	image := func(variable string) string {
		return regexp.MustCompile(`(?m)^` + variable + `=(\S+)$`).FindStringSubmatch(script)[1]
	}
	local, dockerfile := read(t, filepath.Join("..", "local", "kustomization.yaml")), read(t, filepath.Join(root, "deployments", "container", "Dockerfile"))
	for _, variable := range []string{"node", "arbiter", "client"} {
		name, tag, _ := strings.Cut(image(variable), ":")
		require.Contains(t, dockerfile, " AS "+filepath.Base(name)+"\n", "the target that is built")
		if variable != "client" {
			require.Contains(t, local, "newName: "+name+"\n")
			require.Contains(t, local, "newTag: "+tag+"\n")
		}
	}
	examples := filepath.Join(root, "demo", "examples")
	require.Contains(t, read(t, filepath.Join(examples, "whole-card", "pod.yaml")), "image: "+image("client")+"\n")
	require.Contains(t, read(t, filepath.Join(examples, "training-job", "job.yaml")), "image: "+image("busybox")+"\n")
}

func TestScriptIsAShellScript(t *testing.T) {
	t.Parallel()
	info, err := os.Stat("up.sh")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o111, "it can be run")
	out, err := exec.CommandContext(t.Context(), "sh", "-n", "up.sh").CombinedOutput()
	require.NoError(t, err, string(out))
}
