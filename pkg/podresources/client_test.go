// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tranche-dra/tranche/pkg/podresources"
)

type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	allocatable *podresourcesv1.AllocatableResourcesResponse
	pods        *podresourcesv1.ListPodResourcesResponse
	err         error
}

func (k *kubelet) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return k.allocatable, k.err
}

func (k *kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return k.pods, k.err
}

// serve runs a fake kubelet in a root directory whose name is hard to quote.
func serve(t *testing.T, api podresourcesv1.PodResourcesListerServer) string {
	t.Helper()
	root, err := os.MkdirTemp("", "kube let%20") // t.TempDir is too long for a socket in long-named tests
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	socket := podresources.SocketIn(root)
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o750))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, api)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return socket
}

func dynamic(namespace, name string) *podresourcesv1.DynamicResource {
	return &podresourcesv1.DynamicResource{ClaimNamespace: namespace, ClaimName: name}
}

func TestAllocatable(t *testing.T) {
	t.Parallel()
	socket := serve(t, &kubelet{allocatable: &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{
		{ResourceName: "nvidia.com/gpu", DeviceIds: []string{"GPU-b", "GPU-a"}},
		{ResourceName: "example.com/nic", DeviceIds: []string{"eth1"}},
		{ResourceName: "nvidia.com/gpu", DeviceIds: []string{"GPU-b", "GPU-c"}},
	}}})
	got, err := podresources.New(socket).Allocatable(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string][]string{
		"nvidia.com/gpu":  {"GPU-a", "GPU-b", "GPU-c"},
		"example.com/nic": {"eth1"},
	}, got, "a device on two NUMA nodes is listed twice by kubelet and counts once")
}

func TestClaimsInUse(t *testing.T) {
	t.Parallel()
	socket := serve(t, &kubelet{pods: &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{
		{Name: "plain"},
		{Name: "two", Containers: []*podresourcesv1.ContainerResources{
			{DynamicResources: []*podresourcesv1.DynamicResource{dynamic("team", "a"), dynamic("team", "b")}},
			{DynamicResources: []*podresourcesv1.DynamicResource{dynamic("team", "a")}},
		}},
		{Name: "other", Containers: []*podresourcesv1.ContainerResources{{DynamicResources: []*podresourcesv1.DynamicResource{dynamic("other", "a")}}}},
	}}})
	got, err := podresources.New(socket).ClaimsInUse(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[types.NamespacedName]struct{}{
		{Namespace: "team", Name: "a"}: {}, {Namespace: "team", Name: "b"}: {}, {Namespace: "other", Name: "a"}: {},
	}, got)
}

func TestKubeletThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	abandoned := func(t *testing.T) string {
		t.Helper()
		socket := filepath.Join(t.TempDir(), "k.sock")
		listener, err := net.Listen("unix", socket)
		require.NoError(t, err)
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		require.NoError(t, listener.Close())
		return socket
	}
	for name, tc := range map[string]struct {
		socket      func(*testing.T) string
		unavailable bool
	}{
		"the socket is missing":                 {func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "none.sock") }, true},
		"nobody listens on the socket any more": {abandoned, true},
		"this kubelet does not offer the calls": {func(t *testing.T) string {
			t.Helper()
			return serve(t, podresourcesv1.UnimplementedPodResourcesListerServer{})
		}, true},
		"kubelet answers with an error": {func(t *testing.T) string {
			t.Helper()
			return serve(t, &kubelet{err: status.Error(codes.Internal, "broken")})
		}, false},
		"kubelet limits the rate (and is available)": {func(t *testing.T) string {
			t.Helper()
			return serve(t, &kubelet{err: status.Error(codes.ResourceExhausted, "slow down")})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := tc.socket(t)
			client := podresources.New(socket)
			devices, err := client.Allocatable(t.Context())
			require.ErrorContains(t, err, "list allocatable devices from "+socket)
			require.Equal(t, tc.unavailable, isUnavailable(err), "%v", err)
			require.Nil(t, devices, "unknown is not none")
			claims, err := client.ClaimsInUse(t.Context())
			require.ErrorContains(t, err, "list pods' claims from "+socket)
			require.Equal(t, tc.unavailable, isUnavailable(err), "%v", err)
			require.Nil(t, claims)
		})
	}
}

func isUnavailable(err error) bool { return errors.Is(err, podresources.ErrUnavailable) }
