// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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

// The API server would take the manifests, and a process with their configuration and
// their account, as in a pod, does all of the work.
func TestSchedulerWorksAsShipped(t *testing.T) {
	root, err := kube.Repository()
	require.NoError(t, err)
	_, err = kube.Kubectl(t.Context(), "apply", "--dry-run=server", "-k", filepath.Join(root, "deployments/static/scheduler"))
	require.NoError(t, err)

	runAsShipped(t, root)
	require.Eventually(t, func() bool {
		lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	}, patience, tick, "it takes the lease of kube-scheduler")
	require.Eventually(t, func() bool { return metrics(t, true) == http.StatusOK }, patience, tick,
		"it knows the administrator by what extension-apiserver-authentication says")
	require.Equal(t, http.StatusForbidden, metrics(t, false))

	f := newUrgent(t, "as-shipped")
	f.share(t, "most", "50", "20Gi")
	f.place(t, f.sleeper("first", "most"))
	f.create(t, f.sleeper("second", "most"))
	require.Contains(t, f.refused(t, "second"), "no card has 50 percent compute and 20 GiB free")
	f.place(t, f.urgent("urgent", "most"))
	f.requireGone(t, "first")
	requireNoOverCommitment(t)
}

// runAsShipped replaces the cluster's scheduler until the test ends.
func runAsShipped(t *testing.T, root string) {
	t.Helper()
	token, err := client.CoreV1().ServiceAccounts(kube.System).CreateToken(t.Context(), schedulerAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	authority, err := os.ReadFile(filepath.Join(os.Getenv("TRANCHE_CLUSTER_PKI"), "ca.crt"))
	require.NoError(t, err)
	// Where kubelet puts them in a pod; the node's /run is its own.
	const secrets = "/var/run/secrets"
	account := filepath.Join(secrets, "kubernetes.io/serviceaccount")
	require.NoError(t, os.MkdirAll(account, 0o700))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(secrets)) })
	require.NoError(t, os.WriteFile(filepath.Join(account, "token"), []byte(token.Status.Token), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(account, "ca.crt"), authority, 0o600))

	log, err := os.Create(filepath.Join(os.Getenv("TRANCHE_CLUSTER_LOGS"), "scheduler-as-shipped.log"))
	require.NoError(t, err)
	cmd := exec.Command(filepath.Join(root, "build/bin/tranche-scheduler"),
		"--config="+filepath.Join(root, "deployments/static/scheduler/config.yaml"), "--bind-address=127.0.0.1")
	cmd.Env = []string{"KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443"}
	cmd.Stdout, cmd.Stderr = log, log
	ctl(t, "stop", "scheduler")
	t.Cleanup(func() { require.NoError(t, kube.Control(context.Background(), "start", "scheduler")) })
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait() // it ends with status 1 where it gave the lease back
		require.NoError(t, log.Close())
	})
}

// metrics asks the scheduler for its metrics, as the administrator or as nobody, and
// returns the status.
func metrics(t *testing.T, asAdmin bool) int {
	t.Helper()
	config, err := kube.Config()
	require.NoError(t, err)
	if !asAdmin {
		config = rest.AnonymousClientConfig(config)
	}
	config.CAData, config.CAFile, config.Insecure = nil, "", true // it signed its own certificate
	asker, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	response, err := asker.Get("https://127.0.0.1:10259/metrics")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}
