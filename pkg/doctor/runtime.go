// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeSockets are where container runtimes listen, if nobody said otherwise.
// /var/run is /run on every distribution of today, and looked at where it is not.
func runtimeSockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock",
		"/var/run/containerd/containerd.sock", "/var/run/crio/crio.sock",
	}
}

// Runtime checks that the container runtime reads the CDI directory.
type Runtime struct {
	// Endpoint is the runtime's socket, as kubelet is told it. Empty means the
	// first of the usual ones that answers.
	Endpoint string
	// HostRoot is where this process sees the root of the host: sockets and
	// directories are looked for there as well.
	HostRoot string
	// CDIRoot is where the driver writes specs.
	CDIRoot string
}

// Examine implements Examiner.
func (r Runtime) Examine(ctx context.Context) []Finding {
	sockets := r.sockets()
	if len(sockets) == 0 {
		where := "in the usual places"
		if r.Endpoint != "" {
			where = "at " + r.Endpoint
		}
		return one(Warning, fmt.Sprintf("no socket of a container runtime %s, below %s: whether CDI specs are read is unknown",
			where, strings.Join(r.roots(), " and ")), "name the socket that kubelet uses: --runtime-endpoint")
	}
	var failed error
	for _, socket := range sockets {
		found, err := ask(ctx, socket)
		if err == nil {
			return r.judge(found)
		}
		// Of a machine's sockets, such as that of Docker's containerd, the
		// first is the likeliest to be kubelet's.
		if failed == nil {
			failed = err
		}
	}
	if errors.Is(failed, fs.ErrPermission) {
		return one(Warning, failed.Error(), "run doctor as root")
	}
	return one(Problem, failed.Error(), "see the runtime's log on the node, or name the socket that kubelet uses: --runtime-endpoint")
}

// roots are where the host's files are seen.
func (r Runtime) roots() []string {
	if filepath.Join("/", r.HostRoot) == "/" {
		return []string{"/"}
	}
	return []string{"/", r.HostRoot}
}

// sockets are those that exist.
func (r Runtime) sockets() []string {
	wanted := runtimeSockets()
	if r.Endpoint != "" {
		wanted = []string{strings.TrimPrefix(r.Endpoint, "unix://")}
	}
	var found []string
	for _, root := range r.roots() {
		for _, path := range wanted {
			path = filepath.Join(root, path)
			if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
				found = append(found, path)
			}
		}
	}
	return found
}

// runtimeAnswer is what a runtime says of itself.
type runtimeAnswer struct {
	name, version, socket string
	config                runtimeConfig
}

func ask(ctx context.Context, socket string) (answer runtimeAnswer, err error) {
	fail := func(err error) error {
		return fmt.Errorf("ask container runtime at %s: %w", socket, err)
	}
	// Dialled by hand first: gRPC would hide why it cannot be.
	var dialer net.Dialer
	probe, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return answer, fail(err)
	}
	_ = probe.Close()
	conn, err := dial(socket)
	if err != nil {
		return answer, fail(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	client := cri.NewRuntimeServiceClient(conn)
	version, err := client.Version(ctx, &cri.VersionRequest{})
	if status.Code(err) == codes.Unimplemented {
		return answer, fail(fmt.Errorf("it does not serve kubelet (its CRI plugin is off, or it is too old): %w", err))
	}
	if err != nil {
		return answer, fail(err)
	}
	answer = runtimeAnswer{name: version.GetRuntimeName(), version: version.GetRuntimeVersion(), socket: socket}
	state, err := client.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return answer, fail(err)
	}
	// A configuration that cannot be read is one that does not tell.
	answer.config, _ = decodeRuntimeConfig(state.GetInfo()["config"])
	return answer, nil
}

// dial goes around gRPC's resolvers: the path is not a URL.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///socket",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))
}
