// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dra/tranche/tests/kube"
)

const (
	stateDir = "/var/lib/tranche"
	cards    = 2
	// patience is the deadline of every wait: generous, for it only ends runs
	// that have failed.
	patience = 2 * time.Minute
	tick     = 100 * time.Millisecond
)

// client talks to the cluster as its administrator. It is set once, by TestMain.
var client kubernetes.Interface

func TestMain(m *testing.M) {
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func setUp() (err error) {
	if client, err = kube.Connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := kube.Install(ctx); err != nil {
		return err
	}
	if err := kube.WaitForDriver(ctx); err != nil {
		return err
	}
	return waitForAdmission(ctx)
}

// waitForAdmission waits until the API server has taken the admission policies
// into use, which it does a moment after they were applied.
func waitForAdmission(ctx context.Context) error {
	wrong := kube.Template("wrong", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("101", "1Gi")))
	every := time.NewTicker(tick)
	defer every.Stop()
	for {
		_, err := client.ResourceV1().ResourceClaimTemplates("default").Create(ctx, wrong, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the admission policies: %w (last answer: %w)", ctx.Err(), err)
		}
	}
}

// ctl stops, starts, restarts or kills a component of the cluster.
func ctl(t *testing.T, verb, component string) {
	t.Helper()
	require.NoError(t, kube.Control(t.Context(), verb, component))
}

// team is a namespace of one test.
type team struct {
	name string
}

// newTeam makes a namespace. When the test ends its pods are deleted, and the
// node must then be as it was: no record, no spec and no directory is left.
func newTeam(t *testing.T, name string) team {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	n := team{name}
	t.Cleanup(func() {
		if t.Failed() {
			n.explain(t)
		}
		n.deletePods(t)
		require.NoError(t, client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}))
		requireCleanNode(t)
	})
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, patience, tick)
	return n
}

func (n team) deletePods(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	now := int64(0)
	require.NoError(t, client.CoreV1().Pods(n.name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, client.ResourceV1().ResourceClaims(n.name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
	require.Eventually(t, func() bool {
		pods, err := client.CoreV1().Pods(n.name).List(ctx, metav1.ListOptions{})
		claims, err2 := client.ResourceV1().ResourceClaims(n.name).List(ctx, metav1.ListOptions{})
		return err == nil && err2 == nil && len(pods.Items) == 0 && len(claims.Items) == 0
	}, patience, tick, "pods and claims of %s are gone", n.name)
}

// explain prints what helps to understand a failure.
func (n team) explain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"-n", n.name, "get", "pods,resourceclaims", "-o", "wide"},
		{"-n", n.name, "get", "events", "--sort-by=.lastTimestamp"},
		{"-n", kube.System, "get", "pods,events"},
		{"-n", kube.System, "logs", "-l", kube.Selector, "--tail=40"},
		{"-n", kube.System, "logs", "-l", kube.ArbiterSelector, "--tail=40"},
	} {
		out, _ := kube.Kubectl(ctx, args...)
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
}

// left is all that the driver has on the node for claims.
func left(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		stateDir + "/claims/*.json", stateDir + "/claims/.*.tmp", stateDir + "/claims/damaged/*", stateDir + "/shares/*",
		os.Getenv("TRANCHE_CLUSTER_CDI_DIR") + "/*tranche*", os.Getenv("TRANCHE_CLUSTER_CDI_DIR") + "/.*tranche*",
	} {
		matches, err := filepath.Glob(pattern)
		require.NoError(t, err)
		found = append(found, matches...)
	}
	return found
}

func requireCleanNode(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(left(t)) == 0 }, patience, tick, "the node is clean")
	require.Empty(t, left(t))
}

// pod makes a pod whose only container uses one claim, made from a template
// with the requests.
func (n team) pod(t *testing.T, name string, requests ...resourceapi.DeviceRequest) *corev1.Pod {
	t.Helper()
	n.template(t, name, requests...)
	pod := kube.Sleeper(name)
	kube.Use(pod, 0, "gpu", name)
	return n.create(t, pod)
}

func (n team) template(t *testing.T, name string, requests ...resourceapi.DeviceRequest) {
	t.Helper()
	_, err := client.ResourceV1().ResourceClaimTemplates(n.name).Create(t.Context(), kube.Template(name, requests...), metav1.CreateOptions{})
	require.NoError(t, err)
}

// claim makes one that pods can share.
func (n team) claim(t *testing.T, name string, request resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	t.Helper()
	created, err := client.ResourceV1().ResourceClaims(n.name).Create(t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kube.Template(name, request).Spec.Spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

func (n team) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := client.CoreV1().Pods(n.name).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// ready waits until the pods are ready.
func (n team) ready(t *testing.T, names ...string) {
	t.Helper()
	n.readyWithin(t, patience, names...)
}

// readyWithin is ready with another deadline, for each of the pods.
func (n team) readyWithin(t *testing.T, deadline time.Duration, names ...string) {
	t.Helper()
	for _, name := range names {
		require.Eventually(t, func() bool {
			pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && kube.Condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
		}, deadline, tick, "pod %s is ready", name)
	}
}

// waits checks that the scheduler has tried the pod and found no room for it.
func (n team) waits(t *testing.T, name string) {
	t.Helper()
	var message string
	require.Eventually(t, func() bool {
		pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		scheduled := kube.Condition(pod, corev1.PodScheduled)
		message = scheduled.Message
		return scheduled.Status == corev1.ConditionFalse
	}, patience, tick, "pod %s is waiting", name)
	require.Regexp(t, "no card is unused|no (card|node) has|cannot allocate all claims", message)
}

// results of all claims of a pod, in order.
func (n team) results(t *testing.T, pod string) []resourceapi.DeviceRequestAllocationResult {
	t.Helper()
	var results []resourceapi.DeviceRequestAllocationResult
	for _, claim := range n.claims(t, pod) {
		require.NotNil(t, claim.Status.Allocation, "claim %s is allocated", claim.Name)
		results = append(results, claim.Status.Allocation.Devices.Results...)
	}
	return results
}

func (n team) claims(t *testing.T, name string) []*resourceapi.ResourceClaim {
	t.Helper()
	pod, err := client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	var names []string
	for _, s := range pod.Status.ResourceClaimStatuses {
		names = append(names, *s.ResourceClaimName)
	}
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	var claims []*resourceapi.ResourceClaim
	for _, c := range names {
		claim, err := client.ResourceV1().ResourceClaims(n.name).Get(t.Context(), c, metav1.GetOptions{})
		require.NoError(t, err)
		claims = append(claims, claim)
	}
	return claims
}

// card of a pod that holds exactly one.
func (n team) card(t *testing.T, pod string) string {
	t.Helper()
	results := n.results(t, pod)
	require.Len(t, results, 1)
	return results[0].Device
}

// inside runs a shell command in a container. It is tried again for as long as
// kubelet does not know the pod, which is so for a moment after its restart.
func (n team) inside(t *testing.T, pod, container, command string) string {
	t.Helper()
	var out string
	require.Eventually(t, func() bool {
		var err error
		out, err = kube.Kubectl(t.Context(), "-n", n.name, "exec", pod, "-c", container, "--", "/bin/busybox", "sh", "-c", command)
		return err == nil
	}, patience, tick, "run %s in pod %s", command, pod)
	return out
}

// shareFiles are the share.json files that a container sees, by key.
func (n team) shareFiles(t *testing.T, pod, container string) []string {
	t.Helper()
	out := n.inside(t, pod, container, "cd /run/tranche && /bin/busybox ls -d */share.json")
	return strings.Fields(out)
}

func (n team) delete(t *testing.T, pod string) {
	t.Helper()
	require.NoError(t, client.CoreV1().Pods(n.name).Delete(t.Context(), pod, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Pods(n.name).Get(t.Context(), pod, metav1.GetOptions{})
		return err != nil
	}, patience, tick, "pod %s is gone", pod)
}
