// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tranche-dra/tranche/tests/kube"
)

// driverOf is a client with a token of the driver's pod on a node.
func driverOf(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	pod := driverPod(t)
	require.Equal(t, node, pod.Spec.NodeName)
	token, err := client.CoreV1().ServiceAccounts(kube.System).CreateToken(t.Context(), pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := kube.Config()
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
	pods, err := client.CoreV1().Pods(kube.System).List(t.Context(), metav1.ListOptions{LabelSelector: kube.Selector})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	return &pods.Items[0]
}
