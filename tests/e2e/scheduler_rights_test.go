// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tranche-dra/tranche/tests/kube"
)

const schedulerAccount = "tranche-scheduler"

// All tests of placement and preemption are run by a scheduler that has the rights of
// the manifest and no other.
func TestSchedulerRunsAsItsAccount(t *testing.T) {
	kubeconfig := filepath.Join(os.Getenv("TRANCHE_CLUSTER_PKI"), "kube-scheduler.kubeconfig")
	who, err := kube.Kubectl(t.Context(), "--kubeconfig="+kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	require.NoError(t, err)
	require.Equal(t, "system:serviceaccount:"+kube.System+":"+schedulerAccount, who)
}

func TestSchedulerMayOnlyWhatItNeeds(t *testing.T) {
	const dra, rbac, leases = "resource.k8s.io", "rbac.authorization.k8s.io", "coordination.k8s.io"
	of := func(verb, group, resource string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource}
	}
	sub := func(verb, group, resource, subresource string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: subresource}
	}
	named := func(verb, group, resource, namespace, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name}
	}
	for allowed, all := range map[bool][]authorizationv1.ResourceAttributes{
		true: {
			of("watch", "", "pods"), of("watch", "", "nodes"), of("watch", dra, "resourceslices"), of("watch", dra, "deviceclasses"),
			of("watch", dra, "resourceclaims"), sub("update", dra, "resourceclaims", "status"),
			of("create", dra, "resourceclaims"), of("delete", dra, "resourceclaims"), // for pods that ask for extended resources
			sub("create", "", "pods", "binding"), sub("patch", "", "pods", "status"), of("delete", "", "pods"), of("list", "policy", "poddisruptionbudgets"),
			of("create", "events.k8s.io", "events"),
			of("update", "", "persistentvolumeclaims"), of("watch", "storage.k8s.io", "storageclasses"),
			named("update", leases, "leases", "kube-system", "kube-scheduler"),
			named("get", "", "configmaps", "kube-system", "extension-apiserver-authentication"),
		},
		false: {
			of("create", "", "pods"), of("update", "", "pods"), sub("create", "", "pods", "exec"), sub("get", "", "pods", "log"),
			of("update", "", "nodes"), of("delete", "", "nodes"), sub("patch", "", "nodes", "status"),
			of("get", "", "secrets"), of("list", "", "configmaps"), sub("create", "", "serviceaccounts", "token"),
			of("create", dra, "resourceslices"), of("update", dra, "resourceslices"), of("delete", dra, "resourceslices"),
			of("update", dra, "deviceclasses"), of("deletecollection", dra, "resourceclaims"), of("deletecollection", "", "pods"),
			of("update", "apps", "daemonsets"), of("create", rbac, "clusterrolebindings"), of("impersonate", "", "users"),
			named("update", leases, "leases", "kube-system", "kube-controller-manager"),
			named("get", "", "configmaps", "kube-system", "another"),
		},
	} {
		for _, a := range all {
			require.Equal(t, allowed, mayExactly(t, schedulerAccount, a), "%s %s/%s in group %q, %s/%s", a.Verb, a.Resource, a.Subresource, a.Group, a.Namespace, a.Name)
		}
	}
}

// The shipped deployment, in pods with no right but those of its account, does all of
// the work.
func TestSchedulerWorksAsShipped(t *testing.T) {
	pods := deployScheduler(t)
	require.Eventually(t, func() bool {
		lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
		return err == nil && lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, schedulerAccount+"-")
	}, patience, tick, "one of the pods takes the lease of kube-scheduler")
	for i := range pods {
		require.Eventually(t, func() bool { return metrics(t, &pods[i], true) == http.StatusOK }, patience, tick,
			"it knows the administrator by what extension-apiserver-authentication says")
		require.Equal(t, http.StatusForbidden, metrics(t, &pods[i], false))
	}

	f := newUrgent(t, "as-shipped")
	f.share(t, "most", "50", "20Gi")
	f.place(t, f.sleeper("first", "most"))
	f.create(t, f.sleeper("second", "most"))
	require.Contains(t, f.refused(t, "second"), "no card has 50 percent compute and 20 GiB free")
	f.place(t, f.urgent("urgent", "most"))
	f.requireGone(t, "first")
	requireNoOverCommitment(t)
}

// deployScheduler has the shipped deployment take the place of the cluster's scheduler
// until the test ends, and gives its pods.
func deployScheduler(t *testing.T) []corev1.Pod {
	t.Helper()
	root, err := kube.Repository()
	require.NoError(t, err)
	shipped := filepath.Join(root, "deployments/static/scheduler")
	t.Cleanup(func() { require.NoError(t, kube.Control(context.Background(), "start", "scheduler")) })
	t.Cleanup(func() { // its account is the scheduler's of the cluster, too, and stays
		_, err := kube.Kubectl(context.Background(), "-n", kube.System, "delete", "deployment", schedulerAccount, "--cascade=foreground", "--wait")
		require.NoError(t, err)
	})
	_, err = kube.Kubectl(t.Context(), "apply", "-k", shipped)
	require.NoError(t, err)
	_, err = kube.Kubectl(t.Context(), "-n", kube.System, "rollout", "status", "deployment/"+schedulerAccount, "--timeout=2m")
	require.NoError(t, err)
	ctl(t, "stop", "scheduler")
	pods, err := client.CoreV1().Pods(kube.System).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + schedulerAccount})
	require.NoError(t, err)
	require.Len(t, pods.Items, 2)
	return pods.Items
}

// metrics asks the pod for its metrics, as the administrator or as nobody, and returns
// the status.
func metrics(t *testing.T, pod *corev1.Pod, asAdmin bool) int {
	t.Helper()
	config, err := kube.Config()
	require.NoError(t, err)
	if !asAdmin {
		config = rest.AnonymousClientConfig(config)
	}
	config.CAData, config.CAFile, config.Insecure = nil, "", true // it signed its own certificate
	asker, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	response, err := asker.Get("https://" + pod.Status.PodIP + ":10259/metrics")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}
