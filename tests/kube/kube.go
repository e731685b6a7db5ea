// SPDX-License-Identifier: Apache-2.0

// Package kube is what the end-to-end tests and the benchmarks on a real node
// have in common: reaching the cluster of tests/cluster around them, installing
// the driver as demo/clusters/local does, and making pods that hold shares.
package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Where the driver is.
const (
	Driver    = "gpu.tranche.dev"
	System    = "tranche-system"
	DaemonSet = "tranche-node"
	Arbiter   = "tranche-arbiter"
	// Selector finds the driver's pods, ArbiterSelector the arbiter's.
	Selector        = "app.kubernetes.io/name=tranche-node"
	ArbiterSelector = "app.kubernetes.io/name=tranche-arbiter"
)

// ErrNoCluster says that the program was not started inside of the cluster.
var ErrNoCluster = errors.New("TRANCHE_CLUSTER_SOCKET is not set: this runs inside the cluster of tests/cluster, as 'make test-e2e' and 'make bench' start it")

// Config reaches the cluster as its administrator, without a limit on requests
// that a test could run into.
func Config() (*rest.Config, error) {
	if os.Getenv("TRANCHE_CLUSTER_SOCKET") == "" {
		return nil, ErrNoCluster
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	return config, nil
}

// Connect makes a client from Config.
func Connect() (kubernetes.Interface, error) {
	config, err := Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Kubectl runs kubectl and returns all that it printed.
func Kubectl(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "kubectl", args...))
}

// Control stops, starts, restarts or kills a component of the cluster.
func Control(ctx context.Context, verb, component string) error {
	_, err := output(exec.CommandContext(ctx, os.Getenv("TRANCHE_CLUSTER_CTL"), "ctl", verb, component))
	return err
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, text)
	}
	return text, nil
}

// Repository is the root of the working copy that the program runs in.
func Repository() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "deviceclasses")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("find the repository: the program must be started inside of it")
}

// Install applies demo/clusters/local.
func Install(ctx context.Context) error {
	root, err := Repository()
	if err != nil {
		return err
	}
	if _, err := Kubectl(ctx, "apply", "-k", filepath.Join(root, "demo", "clusters", "local")); err != nil {
		return fmt.Errorf("install the driver: %w", err)
	}
	return nil
}

// WaitForDriver waits until every instance of the driver and of the arbiter is
// ready.
func WaitForDriver(ctx context.Context) error {
	for _, set := range []string{DaemonSet, Arbiter} {
		if _, err := Kubectl(ctx, "-n", System, "rollout", "status", "daemonset/"+set, "--timeout=120s"); err != nil {
			pods, _ := Kubectl(ctx, "-n", System, "describe", "pods")
			return fmt.Errorf("wait for the driver: %w\n%s", err, pods)
		}
	}
	return nil
}

// Amounts that a request names, nil for none.
type Amounts map[resourceapi.QualifiedName]string

// Share is what most requests name.
func Share(cores, memory string) Amounts { return Amounts{"cores": cores, "memory": memory} }

// Request is one request of a claim.
func Request(name, class string, count int64, of Amounts) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, Count: count, AllocationMode: resourceapi.DeviceAllocationModeExactCount,
	}
	if of != nil {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	}
	for name, amount := range of {
		exactly.Capacity.Requests[name] = resource.MustParse(amount)
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: exactly}
}

// Template makes claims with the requests.
func Template(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimTemplateSpec{
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
		},
	}
}

// Sleeper is a pod with one container that waits, and ends at once when told.
func Sleeper(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "main", Image: "localhost/tranche/busybox:dev", ImagePullPolicy: corev1.PullNever,
				Command: []string{"/bin/busybox", "sleep", "3600"},
			}},
		},
	}
}

// Client is a Sleeper whose container has the programs of tests/clients.
func Client(name string) *corev1.Pod {
	pod := Sleeper(name)
	pod.Spec.Containers[0].Image = "localhost/tranche/client:dev"
	return pod
}

// Use gives a container of the pod a claim that is made from a template.
func Use(pod *corev1.Pod, container int, claim, template string) {
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimTemplateName: &template})
	resources := &pod.Spec.Containers[container].Resources
	resources.Claims = append(resources.Claims, corev1.ResourceClaim{Name: claim})
}

// Condition is the status of a pod's condition, empty where it is not there yet.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}
