// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/deployments/static"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
)

// all finds the manifests of one kind. There must be as many as are wanted.
func all[T any](t *testing.T, want int) []T {
	t.Helper()
	objects, err := static.Objects()
	require.NoError(t, err)
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	require.Len(t, found, want)
	return found
}

func daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	return all[*appsv1.DaemonSet](t, 1)[0]
}

// Four places name the service account; the API server compares none of them.
func TestOneServiceAccountIsMeantEverywhere(t *testing.T) {
	t.Parallel()
	namespace := all[*corev1.Namespace](t, 1)[0].Name
	account := all[*corev1.ServiceAccount](t, 1)[0]
	require.Equal(t, namespace, account.Namespace)

	set := daemonSet(t)
	require.Equal(t, namespace, set.Namespace)
	require.Equal(t, account.Name, set.Spec.Template.Spec.ServiceAccountName)

	role, binding := all[*rbacv1.ClusterRole](t, 1)[0], all[*rbacv1.ClusterRoleBinding](t, 1)[0]
	require.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, binding.RoleRef)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: namespace}}, binding.Subjects)

	var conditions []string
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](t, 2) {
		if p.Name == slicesPolicy {
			for _, c := range p.Spec.MatchConditions {
				conditions = append(conditions, c.Expression)
			}
		}
	}
	require.Equal(t, []string{"request.userInfo.username == 'system:serviceaccount:" + namespace + ":" + account.Name + "'"}, conditions)
}

func TestEveryPolicyIsBoundAndDenies(t *testing.T) {
	t.Parallel()
	var policies, bound []string
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](t, 2) {
		policies = append(policies, p.Name)
		require.Equal(t, admissionregistrationv1.Fail, *p.Spec.FailurePolicy, p.Name)
		require.Nil(t, p.Spec.MatchConstraints.MatchPolicy, "other versions of the API are converted, by default")
	}
	for _, b := range all[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, 2) {
		bound = append(bound, b.Spec.PolicyName)
		require.Equal(t, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, b.Spec.ValidationActions)
		require.Nil(t, b.Spec.MatchResources, "no namespace is left out")
	}
	require.ElementsMatch(t, policies, bound)
}

func TestTheRoleAllowsWhatIsUsedAndNothingElse(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	for _, rule := range all[*rbacv1.ClusterRole](t, 1)[0].Rules {
		require.Empty(t, rule.NonResourceURLs)
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				got[group+"/"+resource] = append(got[group+"/"+resource], rule.Verbs...)
			}
		}
	}
	require.Equal(t, map[string][]string{
		"resource.k8s.io/resourceslices": {"list", "watch", "create", "update", "delete"},
		"resource.k8s.io/resourceclaims": {"get"},
		"resource.k8s.io/deviceclasses":  {"get", "list"},
		"/events":                        {"create", "patch"},
		"events.k8s.io/events":           {"create", "patch"},

		"admissionregistration.k8s.io/validatingadmissionpolicies":       {"get", "list"},
		"admissionregistration.k8s.io/validatingadmissionpolicybindings": {"get", "list"},
	}, got)
}

func TestTheDriverHasNoPrivilege(t *testing.T) {
	t.Parallel()
	pod := daemonSet(t).Spec.Template.Spec
	require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	require.Len(t, pod.Containers, 1)
	require.Empty(t, pod.InitContainers)
	c := pod.Containers[0].SecurityContext
	require.False(t, *c.Privileged)
	require.False(t, *c.AllowPrivilegeEscalation)
	require.True(t, *c.ReadOnlyRootFilesystem)
	require.Equal(t, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, c.Capabilities)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, c.SeccompProfile.Type)
}

func TestTheDaemonSetStandsAgainst(t *testing.T) {
	t.Parallel()
	pod := daemonSet(t).Spec.Template.Spec
	container := pod.Containers[0]
	volumeType := func(name string) corev1.HostPathType {
		for _, v := range pod.Volumes {
			if v.Name == name && v.HostPath.Type != nil {
				return *v.HostPath.Type
			}
		}
		return corev1.HostPathUnset
	}
	for name, row := range map[string]struct{ got, want any }{
		"taints of GPU nodes and of nodes in trouble, where pods still have to be unprepared": {
			pod.Tolerations, []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
		"eviction and preemption by the pods that wait for it": {pod.PriorityClassName, "system-node-critical"},
		"kubelet's sockets and files, which only root opens":   {*container.SecurityContext.RunAsUser, int64(0)},
		"the group of those files":                             {*container.SecurityContext.RunAsGroup, int64(0)},
		"a first start that has a minute, since a node with many cards and records takes a while": {
			container.StartupProbe.PeriodSeconds * container.StartupProbe.FailureThreshold, int32(60),
		},
		"prepares under way, which end in good order before it is killed": {*pod.TerminationGracePeriodSeconds, int64(15)},
		"nodes on which nothing has written a CDI spec yet":               {volumeType("cdi"), corev1.HostPathDirectoryOrCreate},
		"its first start on a node":                                       {volumeType("state"), corev1.HostPathDirectoryOrCreate},
		"a node without any plugin yet":                                   {volumeType("plugins"), corev1.HostPathDirectoryOrCreate},
		"a kubelet of another root, whom a registry made here would never reach": {
			volumeType("registry"), corev1.HostPathDirectory,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, row.got)
		})
	}
}

// The DaemonSet gives what the driver's own defaults expect.
func TestPathsAndPortsFitTheDefaults(t *testing.T) {
	t.Parallel()
	set := daemonSet(t)
	container := set.Spec.Template.Spec.Containers[0]
	hostPaths := map[string]string{}
	for _, v := range set.Spec.Template.Spec.Volumes {
		require.NotNil(t, v.HostPath, v.Name)
		hostPaths[v.Name] = v.HostPath.Path
	}
	mounted := map[string]bool{}
	for _, m := range container.VolumeMounts {
		if m.MountPath == "/driver-root" {
			require.True(t, m.ReadOnly)
			require.Equal(t, corev1.MountPropagationHostToContainer, *m.MountPropagation, "else it keeps the host's mounts busy")
			continue
		}
		require.Equal(t, hostPaths[m.Name], m.MountPath, "kubelet dials what it is told: %s", m.Name)
		mounted[m.MountPath] = !m.ReadOnly
	}
	require.Equal(t, map[string]bool{
		v1alpha1.DefaultKubeletRoot + "/plugins":          true,
		v1alpha1.DefaultKubeletRoot + "/plugins_registry": true,
		v1alpha1.DefaultKubeletRoot + "/pod-resources":    false,
		v1alpha1.DefaultCDIRoot:                           true,
		v1alpha1.DefaultStateDir:                          true,
	}, mounted, "path to writable")

	ports := map[string]string{}
	for _, p := range container.Ports {
		ports[p.Name] = ":" + strconv.Itoa(int(p.ContainerPort))
	}
	require.Equal(t, map[string]string{"metrics": v1alpha1.DefaultMetricsAddress, "health": v1alpha1.DefaultHealthAddress}, ports)
	require.Equal(t, ports["health"], ":"+strconv.Itoa(int(container.LivenessProbe.GRPC.Port)))
	require.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, "metrics", container.ReadinessProbe.HTTPGet.Port.StrVal)
}

func TestAnUpdateNeverLeavesANodeWithoutDriver(t *testing.T) {
	t.Parallel()
	set := daemonSet(t)
	update := set.Spec.UpdateStrategy.RollingUpdate
	require.Equal(t, 1, update.MaxSurge.IntValue())
	require.Equal(t, 0, update.MaxUnavailable.IntValue())
	fields := map[string]string{}
	for _, e := range set.Spec.Template.Spec.Containers[0].Env {
		if e.ValueFrom != nil {
			fields[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	require.Equal(t, map[string]string{"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"}, fields,
		"the pod's UID tells the two instances of an update apart")
	for k, v := range set.Spec.Selector.MatchLabels {
		require.Equal(t, v, set.Spec.Template.Labels[k])
	}
}

func TestKustomizationNamesEveryManifest(t *testing.T) {
	t.Parallel()
	var k struct{ Resources []string }
	raw, err := os.ReadFile("Kustomization")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &k))
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.Equal(t, files, k.Resources)
	require.True(t, slices.IsSorted(files))
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, f := range files {
		require.Contains(t, string(readme), "| `"+f+"` |")
	}
}

func TestThePatchGivesPrivilege(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("privileged", "patch.yaml"))
	require.NoError(t, err)
	raw, err = yaml.YAMLToJSONStrict(raw)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(raw)
	require.NoError(t, err)
	document, err := json.Marshal(daemonSet(t))
	require.NoError(t, err)
	document, err = patch.Apply(document)
	require.NoError(t, err)
	var set appsv1.DaemonSet
	require.NoError(t, yaml.UnmarshalStrict(document, &set))
	c := set.Spec.Template.Spec.Containers[0].SecurityContext
	require.True(t, *c.Privileged)
	require.Nil(t, c.AllowPrivilegeEscalation, "the API server refuses false beside privileged")
	require.True(t, *c.ReadOnlyRootFilesystem)
}

func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n"
	for name, row := range map[string]struct{ stream, err string }{
		"comments and empty documents are passed over": {"# a\n---\n# b\n---\n" + head + "---\n", ""},
		"an unknown field":           {head + "---\n" + head + "  nmae: b\n", `decode document 2: strict decoding error: unknown field "metadata.nmae"`},
		"a field given twice":        {head + "  name: b\n", "already set"},
		"a kind that does not exist": {"apiVersion: v1\nkind: Namespaces\n", "no kind"},
		"no YAML":                    {"a: b: c", "read document 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := static.Decode([]byte(row.stream))
			if row.err == "" {
				require.NoError(t, err)
				require.Len(t, objects, 1)
				return
			}
			require.ErrorContains(t, err, row.err)
		})
	}
}
