// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// The names of the DaemonSets, their service accounts and roles.
const (
	node    = "tranche-node"
	arbiter = "tranche-arbiter"
)

// named finds the manifest of one kind with that name.
func named[T metav1.Object](t *testing.T, name string) T {
	t.Helper()
	list := all[T](t, 2)
	i := slices.IndexFunc(list, func(o T) bool { return o.GetName() == name })
	require.GreaterOrEqual(t, i, 0, name)
	return list[i]
}

func daemonSet(t *testing.T, name string) *appsv1.DaemonSet {
	t.Helper()
	return named[*appsv1.DaemonSet](t, name)
}

// Four places name the service account; the API server compares none of them.
func TestOneServiceAccountIsMeantEverywhere(t *testing.T) {
	t.Parallel()
	namespace := all[*corev1.Namespace](t, 1)[0].Name
	for _, name := range []string{node, arbiter} {
		account := named[*corev1.ServiceAccount](t, name)
		require.Equal(t, namespace, account.Namespace)

		set := daemonSet(t, name)
		require.Equal(t, namespace, set.Namespace)
		require.Equal(t, account.Name, set.Spec.Template.Spec.ServiceAccountName)

		role, binding := named[*rbacv1.ClusterRole](t, name), named[*rbacv1.ClusterRoleBinding](t, name)
		require.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, binding.RoleRef)
		require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: namespace}}, binding.Subjects)
	}
	var conditions []string
	for _, p := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](t, 2) {
		if p.Name == slicesPolicy {
			for _, c := range p.Spec.MatchConditions {
				conditions = append(conditions, c.Expression)
			}
		}
	}
	require.Equal(t, []string{"request.userInfo.username == 'system:serviceaccount:" + namespace + ":" + node + "'"}, conditions)
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

func TestTheRolesAllowWhatIsUsedAndNothingElse(t *testing.T) {
	t.Parallel()
	allowed := func(name string) map[string][]string {
		got := map[string][]string{}
		for _, rule := range named[*rbacv1.ClusterRole](t, name).Rules {
			require.Empty(t, rule.NonResourceURLs)
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					name := strings.Join(append([]string{group + "/" + resource}, rule.ResourceNames...), " ")
					got[name] = append(got[name], rule.Verbs...)
				}
			}
		}
		return got
	}
	require.Equal(t, map[string][]string{
		"/events":              {"create", "patch"},
		"events.k8s.io/events": {"create", "patch"},

		"resource.k8s.io/resourceclaims/status":                 {"patch"},
		"resource.k8s.io/resourceclaims/driver gpu.tranche.dev": {"associated-node:patch"},
	}, allowed(arbiter))
	require.Equal(t, map[string][]string{
		"resource.k8s.io/resourceslices": {"list", "watch", "create", "update", "delete"},
		"resource.k8s.io/resourceclaims": {"get", "list", "watch"},
		"resource.k8s.io/deviceclasses":  {"get", "list"},
		"/nodes":                         {"list", "watch"},
		"/events":                        {"create", "patch"},
		"events.k8s.io/events":           {"create", "patch"},

		"admissionregistration.k8s.io/validatingadmissionpolicies":       {"get", "list"},
		"admissionregistration.k8s.io/validatingadmissionpolicybindings": {"get", "list"},
	}, allowed(node))
}

func TestNobodyHasMorePrivilegeThanItNeeds(t *testing.T) {
	t.Parallel()
	for name, adds := range map[string][]corev1.Capability{node: nil, arbiter: {"SYS_PTRACE", "KILL", "SYS_NICE"}} {
		pod := daemonSet(t, name).Spec.Template.Spec
		require.False(t, pod.HostNetwork || pod.HostIPC, name)
		require.Equal(t, name == arbiter, pod.HostPID, "%s: processes are known by their numbers on the host", name)
		require.Len(t, pod.Containers, 1, name)
		for _, container := range append(pod.InitContainers, pod.Containers...) {
			c := container.SecurityContext
			require.False(t, c.Privileged != nil && *c.Privileged, name)
			require.False(t, *c.AllowPrivilegeEscalation, name)
			require.True(t, *c.ReadOnlyRootFilesystem, name)
			require.Equal(t, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: adds}, c.Capabilities, name)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, c.SeccompProfile.Type, name)
		}
	}
}

// What the driver prepares with is what comes in its own image.
func TestTheRuntimeIsInstalledBeforeTheDriverStarts(t *testing.T) {
	t.Parallel()
	pod := daemonSet(t, node).Spec.Template.Spec
	require.Len(t, pod.InitContainers, 1)
	install, driver := pod.InitContainers[0], pod.Containers[0]
	require.Equal(t, driver.Name, daemonSet(t, node).Spec.Template.Annotations["kubectl.kubernetes.io/default-container"])
	require.Equal(t, driver.Image, install.Image)
	require.Equal(t, []string{
		"/usr/bin/tranche-node", "install-runtime", "--from=" + v1alpha1.DefaultRuntimeSource, "--to=" + v1alpha1.DefaultStateDir + "/runtime",
	}, install.Command)
	require.Len(t, install.VolumeMounts, 1)
	require.Contains(t, driver.VolumeMounts, install.VolumeMounts[0])
	require.Equal(t, v1alpha1.DefaultStateDir, install.VolumeMounts[0].MountPath)
}

// Both look at the same directories of the host.
func TestTheArbiterHasTheDriversDirectories(t *testing.T) {
	t.Parallel()
	mounts := func(name string) map[string]string {
		pod := daemonSet(t, name).Spec.Template.Spec
		paths := map[string]string{}
		for _, m := range pod.Containers[0].VolumeMounts {
			i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			paths[m.MountPath] = pod.Volumes[i].HostPath.Path
		}
		return paths
	}
	of := mounts(arbiter)
	require.Equal(t, map[string]string{v1alpha1.DefaultStateDir: v1alpha1.DefaultStateDir, v1alpha1.DefaultRunDir: v1alpha1.DefaultRunDir, "/driver-root": "/"}, of)
	for path, host := range of {
		require.Equal(t, host, mounts(node)[path], path)
	}
	args := func(name string) []string { return daemonSet(t, name).Spec.Template.Spec.Containers[0].Args }
	require.Equal(t, args(node), args(arbiter), "the driver's root")
}

func TestTheDaemonSetStandsAgainst(t *testing.T) {
	t.Parallel()
	pod := daemonSet(t, node).Spec.Template.Spec
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
		"a node that was rebooted":                                        {volumeType("run"), corev1.HostPathDirectoryOrCreate},
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
	set := daemonSet(t, node)
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
		v1alpha1.DefaultRunDir:                            true,
	}, mounted, "path to writable")

	ports := map[string]string{}
	for _, p := range container.Ports {
		ports[p.Name] = ":" + strconv.Itoa(int(p.ContainerPort))
	}
	require.Equal(t, map[string]string{"metrics": v1alpha1.DefaultMetricsAddress, "health": v1alpha1.DefaultHealthAddress}, ports)
	require.Equal(t, ports["health"], ":"+strconv.Itoa(int(container.LivenessProbe.GRPC.Port)))
	require.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, "metrics", container.ReadinessProbe.HTTPGet.Port.StrVal)

	// Both may be scraped by the same rule, and never at the same port of a node.
	other := daemonSet(t, arbiter).Spec.Template.Spec.Containers[0]
	require.Len(t, other.Ports, 1)
	require.Equal(t, "metrics", other.Ports[0].Name)
	require.EqualValues(t, 9480, other.Ports[0].ContainerPort, "the default of its --metrics-address")
	for probe, path := range map[*corev1.Probe]string{other.StartupProbe: "/healthz", other.LivenessProbe: "/healthz", other.ReadinessProbe: "/readyz"} {
		require.Equal(t, path, probe.HTTPGet.Path)
		require.Equal(t, "metrics", probe.HTTPGet.Port.StrVal)
	}
}

func TestAnUpdateNeverLeavesANodeWithoutDriver(t *testing.T) {
	t.Parallel()
	for _, name := range []string{node, arbiter} {
		update := daemonSet(t, name).Spec.UpdateStrategy.RollingUpdate
		require.Equal(t, 1, update.MaxSurge.IntValue())
		require.Equal(t, 0, update.MaxUnavailable.IntValue())
	}
	set := daemonSet(t, node)
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
	for _, name := range []string{node, arbiter} {
		document, err := json.Marshal(daemonSet(t, name))
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
