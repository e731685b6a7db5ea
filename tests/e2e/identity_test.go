// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// driverOf is a client with a token of the driver's pod on a node.
func driverOf(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	pod := driverPod(t)
	require.Equal(t, node, pod.Spec.NodeName)
	token, err := client.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(t, err)
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token.Status.Token
	driver, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return driver
}

// driverPod is the one pod of the driver.
func driverPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tranche-node"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	return &pods.Items[0]
}
