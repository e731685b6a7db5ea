// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// maxAnswer is the largest answer that is read, in bytes. A node with hundreds
// of pods and device IDs passes gRPC's default of 4 MiB.
const maxAnswer = 16 << 20

// Client asks the kubelet that listens on one socket.
type Client struct {
	socket string
}

// New is a client for the socket at that path. Nothing is opened yet.
func New(socket string) *Client { return &Client{socket: socket} }

// SocketIn is where the kubelet with that root directory listens.
func SocketIn(kubeletRoot string) string {
	return filepath.Join(kubeletRoot, "pod-resources", "kubelet.sock")
}

// Allocatable lists the device IDs that device plugins serve, by resource name,
// each sorted. Devices of DRA drivers are not among them. The error wraps
// ErrUnavailable when kubelet cannot be asked.
func (c *Client) Allocatable(ctx context.Context) (map[string][]string, error) {
	const what = "list allocatable devices"
	out := map[string][]string{}
	err := c.call(what, func(api podresourcesv1.PodResourcesListerClient) error {
		answer, err := api.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
		for _, d := range answer.GetDevices() {
			out[d.GetResourceName()] = append(out[d.GetResourceName()], d.GetDeviceIds()...)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for resource, ids := range out {
		slices.Sort(ids)
		out[resource] = slices.Compact(ids) // one entry per NUMA node of a device
	}
	return out, nil
}

// ClaimsInUse tells which claims containers of pods on this node hold, whatever
// their driver. Kubelet leaves out ordinary init containers, and knows no UIDs:
// absence from the set is a hint, presence is proof. The error wraps
// ErrUnavailable when kubelet cannot be asked.
func (c *Client) ClaimsInUse(ctx context.Context) (map[types.NamespacedName]struct{}, error) {
	out := map[types.NamespacedName]struct{}{}
	err := c.call("list pods' claims", func(api podresourcesv1.PodResourcesListerClient) error {
		answer, err := api.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
		for _, pod := range answer.GetPodResources() {
			for _, container := range pod.GetContainers() {
				for _, r := range container.GetDynamicResources() {
					out[types.NamespacedName{Namespace: r.GetClaimNamespace(), Name: r.GetClaimName()}] = struct{}{}
				}
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (c *Client) call(what string, do func(podresourcesv1.PodResourcesListerClient) error) error {
	conn, err := c.dial()
	if err != nil {
		return fmt.Errorf("%s from %s: %w", what, c.socket, err)
	}
	err = errors.Join(do(podresourcesv1.NewPodResourcesListerClient(conn)), conn.Close())
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Unavailable, codes.Unimplemented:
		return fmt.Errorf("%s from %s: %w: %w", what, c.socket, ErrUnavailable, err)
	default:
		return fmt.Errorf("%s from %s: %w", what, c.socket, err)
	}
}

// dial goes around gRPC's resolvers: a path with a per cent sign or a blank is
// a path all the same.
func (c *Client) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.socket)
		}))
}
