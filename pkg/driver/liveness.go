// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/klog/v2"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Alive calls our own sockets as kubelet does, by their paths: a socket that
// someone removed, or a server that hangs, is found this way. The error says
// which does not answer.
func (d *Driver) Alive(ctx context.Context) error {
	if !d.serving.Load() {
		return ErrNotServing
	}
	return errors.Join(
		ask(d.sockets.registrationPath(), func(conn *grpc.ClientConn) error {
			_, err := registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{})
			return err
		}),
		ask(d.sockets.draPath(), func(conn *grpc.ClientConn) error {
			_, err := drav1.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{})
			return err
		}))
}

func ask(path string, do func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("passthrough:///self",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}))
	if err == nil {
		err = errors.Join(do(conn), conn.Close())
	}
	if err != nil {
		return fmt.Errorf("call own socket %s: %w", path, err)
	}
	return nil
}

// HealthServer answers the gRPC health protocol, which kubelet's liveness probes
// speak, with what Alive finds.
type HealthServer struct {
	grpc_health_v1.UnimplementedHealthServer
	driver *Driver
}

// NewHealthServer answers for that driver.
func NewHealthServer(d *Driver) *HealthServer { return &HealthServer{driver: d} }

// Check implements the health protocol. The name of the service is ignored.
func (h *HealthServer) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	status := grpc_health_v1.HealthCheckResponse_SERVING
	if err := h.driver.Alive(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Not healthy")
		status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	return &grpc_health_v1.HealthCheckResponse{Status: status}, nil
}
