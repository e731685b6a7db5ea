// SPDX-License-Identifier: Apache-2.0

// Package scheduler_test judges the manifests of tranche-scheduler. Its
// configuration is read by a test of cmd/tranche-scheduler, as the program reads it.
package scheduler_test

import (
	"os"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/deployments/static"
)

const name, namespace = "tranche-scheduler", "tranche-system"

// all of one kind in the manifests.
func all[T any](t *testing.T) []T {
	t.Helper()
	var found []T
	for _, file := range []string{"rbac.yaml", "deployment.yaml"} {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		objects, err := static.Decode(raw)
		require.NoError(t, err, file)
		for _, o := range objects {
			if typed, ok := o.(T); ok {
				found = append(found, typed)
			}
		}
	}
	return found
}

func TestOneServiceAccountIsMeantEverywhere(t *testing.T) {
	t.Parallel()
	accounts := all[*corev1.ServiceAccount](t)
	require.Len(t, accounts, 1)
	require.Equal(t, namespace+"/"+name, accounts[0].Namespace+"/"+accounts[0].Name)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}}
	var roles []string
	for _, b := range all[*rbacv1.ClusterRoleBinding](t) {
		require.Equal(t, subjects, b.Subjects)
		roles = append(roles, b.RoleRef.Name)
	}
	for _, b := range all[*rbacv1.RoleBinding](t) {
		require.Equal(t, subjects, b.Subjects)
		roles = append(roles, b.Namespace+"/"+b.RoleRef.Name)
	}
	require.Equal(t, []string{"system:kube-scheduler", "system:volume-scheduler", "kube-system/extension-apiserver-authentication-reader"}, roles)
}

func TestTheDeploymentReadsTheConfiguration(t *testing.T) {
	t.Parallel()
	var kustomization struct {
		Resources          []string `json:"resources"`
		ConfigMapGenerator []struct {
			Name, Namespace string
			Files           []string
		} `json:"configMapGenerator"`
	}
	raw, err := os.ReadFile("Kustomization")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &kustomization))
	require.ElementsMatch(t, []string{"rbac.yaml", "deployment.yaml"}, kustomization.Resources)
	require.Len(t, kustomization.ConfigMapGenerator, 1)
	made := kustomization.ConfigMapGenerator[0]

	deployments := all[*appsv1.Deployment](t)
	require.Len(t, deployments, 1)
	require.Equal(t, namespace, deployments[0].Namespace)
	pod := deployments[0].Spec.Template.Spec
	require.Equal(t, name, pod.ServiceAccountName)
	require.Equal(t, namespace+"/"+pod.Volumes[0].ConfigMap.Name, made.Namespace+"/"+made.Name)
	container := pod.Containers[0]
	require.Equal(t, pod.Volumes[0].Name, container.VolumeMounts[0].Name)
	require.Len(t, made.Files, 1)
	require.FileExists(t, made.Files[0])
	require.Contains(t, container.Args, "--config="+path.Join(container.VolumeMounts[0].MountPath, made.Files[0]))
	require.Equal(t, map[string]string{"app.kubernetes.io/name": name}, deployments[0].Spec.Selector.MatchLabels)
	require.Subset(t, deployments[0].Spec.Template.Labels, deployments[0].Spec.Selector.MatchLabels)
}
