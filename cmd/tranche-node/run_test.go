// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/hostdir"
	"github.com/tranche-dra/tranche/tests/fixture"
)

const patient = 30 * time.Second // a bound for tests that would hang, never a measure

// process is run, with a directory of its own and a fake API server.
type process struct {
	root, metrics, health, source string
	api                           *fake.Clientset
	nodes, claims                 fixture.Objects
	stop                          context.CancelFunc
	wait                          func() error
}

const fleet = "apiVersion: tranche.dev/v1alpha1\nkind: Fleet\ncards:\n- uuid: %s\n  memory: 24Gi\n"

func start(t *testing.T, args ...string) *process {
	t.Helper()
	root, err := os.MkdirTemp("", "n")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	p := &process{root: root, metrics: freeAddress(t), health: freeAddress(t), api: newAPI()}
	source, err := fixture.Libraries(t.Context(), t.TempDir(), t.TempDir()) // the process installs them for itself
	require.NoError(t, err)
	p.source = source
	o, config, err := parse(t, "", nil, append([]string{
		"--run-dir=" + root + "/run", "--runtime-dir=" + root + "/runtime", "--runtime-source=" + source,
		"--node-name=" + fixture.Pool, "--pod-uid=pod", "--kubelet-root=" + root + "/kubelet", "--cdi-root=" + root + "/cdi", "--state-dir=" + root + "/state",
		"--metrics-address=" + p.metrics, "--health-address=" + p.health,
	}, args...)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	arbiter := fixture.ServeShares(ctx, filepath.Join(config.StateDir, "shares"))
	done := make(chan struct{})
	var result error
	go func() {
		defer close(done)
		result = run(ctx, o, config, clients{kubernetes: p.api, nodes: &p.nodes, claims: &p.claims, nodeUID: types.UID("node-uid")})
	}()
	p.stop, p.wait = cancel, func() error { <-done; return result }
	t.Cleanup(func() {
		cancel()
		<-done
		arbiter()
	})
	return p
}

func freeAddress(t *testing.T) string {
	t.Helper()
	n := addresses.Add(1)
	// An address of loopback for each: a port that is free there stays free,
	// for neither other tests nor outgoing connections use it.
	host := fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%250, n/250, 1+n%250)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", host+":0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

var addresses atomic.Int64

// newAPI names what is created, as a server does.
func newAPI() *fake.Clientset {
	client := fake.NewClientset()
	client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: "v1.37.2"}
	var count atomic.Int64
	client.PrependReactor("create", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		slice := action.(k8stesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
		slice.ResourceVersion = strconv.FormatInt(count.Add(1), 10)
		slice.Name = slice.GenerateName + slice.ResourceVersion
		return false, nil, nil
	})
	return client
}

func (p *process) get(t *testing.T, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.metrics+path, http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close() //nolint:errcheck // read to the end below
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func (p *process) eventually(t *testing.T, path string, code int, text string) {
	t.Helper()
	var got int
	var body string
	require.Eventually(t, func() bool { got, body = p.get(t, path); return got == code && (text == "" || body == text) },
		patient, 10*time.Millisecond, "%s never said %d %q", path, code, text)
}

func dial(t *testing.T, network, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (p *process) register(t *testing.T) {
	t.Helper()
	socket := filepath.Join(p.root, "kubelet/plugins_registry/gpu.tranche.dev-pod-reg.sock")
	require.Eventually(t, func() bool { _, err := os.Lstat(socket); return err == nil }, patient, 10*time.Millisecond)
	_, err := registerapi.NewRegistrationClient(dial(t, "unix", socket)).NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true},
		grpc.WaitForReady(true)) // the file is there a moment before anybody listens
	require.NoError(t, err)
}

func TestAClaimsWayThroughTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, fleet, fixture.Card(0).UUID), 0o600))
	p := start(t, "--sim-fleet="+path)
	claim := fixture.Claim("c", fixture.Result{Request: "gpu", Cores: 30, Memory: "4Gi"})
	require.NoError(t, p.api.Tracker().Add(claim))

	p.eventually(t, "/readyz", http.StatusServiceUnavailable, "not registered with kubelet yet\n")
	p.register(t)
	p.eventually(t, "/readyz", http.StatusOK, "ok\n")
	p.eventually(t, "/healthz", http.StatusOK, "ok\n")
	alive, err := grpc_health_v1.NewHealthClient(dial(t, "tcp", p.health)).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, alive.GetStatus())

	conn := dial(t, "unix", filepath.Join(p.root, "kubelet/plugins/gpu.tranche.dev/dra-pod.sock"))
	kubelet := drav1.NewDRAPluginClient(conn)
	ask := []*drav1.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}}
	prepared, err := kubelet.NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: ask})
	require.NoError(t, err)
	answer := prepared.GetClaims()[string(claim.UID)]
	require.Empty(t, answer.GetError())
	require.Len(t, answer.GetDevices(), 1)
	raw, err := os.ReadFile(cdi.NewSpecs(filepath.Join(p.root, "cdi"), durableFiles()).Path(string(claim.UID)))
	require.NoError(t, err)
	var spec struct{ Devices []struct{ Name string } }
	require.NoError(t, json.Unmarshal(raw, &spec))
	require.Equal(t, "gpu.tranche.dev/share="+spec.Devices[0].Name, answer.GetDevices()[0].GetCdiDeviceIds()[0])

	_, body := p.get(t, "/metrics")
	for _, line := range []string{
		`tranche_node_prepared_shares 1`,
		fmt.Sprintf(`tranche_node_card_cores_allocated{index="0",uuid=%q} 30`, fixture.Card(0).UUID),
		`tranche_node_prepare_duration_seconds_count{result="success"} 1`,
	} {
		require.Contains(t, body, line)
	}
	gone, err := kubelet.NodeUnprepareResources(t.Context(), &drav1.NodeUnprepareResourcesRequest{Claims: ask})
	require.NoError(t, err)
	require.Empty(t, gone.GetClaims()[string(claim.UID)].GetError())
	_, body = p.get(t, "/metrics")
	require.Contains(t, body, "tranche_node_prepared_shares 0")

	require.NoError(t, conn.Close())
	p.stop()
	require.NoError(t, p.wait())
	for _, dir := range []string{"kubelet/plugins/gpu.tranche.dev", "kubelet/plugins_registry", "cdi", "state/shares"} {
		left, err := os.ReadDir(filepath.Join(p.root, dir))
		require.NoError(t, err)
		require.Empty(t, left, dir)
	}
}

func TestANodeWithoutCardsIsReadyToo(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no driver is installed":     {"--cards=nvml", "--driver-root=/does/not/exist"},
		"a fleet that is not there":  {"--sim-fleet=/does/not/exist"},
		"nothing is known of either": {"--driver-root=/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, args...)
			p.register(t)
			p.eventually(t, "/readyz", http.StatusOK, "ok\n")
			_, body := p.get(t, "/metrics")
			require.Contains(t, body, "tranche_node_published_cards 0")
		})
	}
}

func TestWhatEndsTheProcess(t *testing.T) {
	t.Parallel()
	t.Run("the CDI directory was deleted under the process", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "cdi")
		require.NoError(t, os.Mkdir(dir, 0o755))
		held, err := os.Open(dir) // as a bind mount holds it
		require.NoError(t, err)
		t.Cleanup(func() { _ = held.Close() })
		config := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(config, []byte(header+"reconcileInterval: 1s\n"), 0o600))
		p := start(t, "--config="+config, "--sim-fleet=/does/not/exist", fmt.Sprintf("--cdi-root=/proc/self/fd/%d", held.Fd()))
		p.eventually(t, "/healthz", http.StatusOK, "")
		require.NoError(t, os.Remove(dir))
		require.ErrorContains(t, p.wait(), "deleted on the host", "the healer may see it first, or the watch")
		left, err := os.ReadDir(filepath.Join(p.root, "kubelet/plugins_registry"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
	t.Run("another directory was mounted over the state directory on the host", func(t *testing.T) {
		t.Parallel()
		host, here := t.TempDir(), filepath.Join(t.TempDir(), "state")
		there := filepath.Join(host, here)
		require.NoError(t, os.MkdirAll(there, 0o755))
		held, err := os.Open(there) // as a bind mount holds it
		require.NoError(t, err)
		t.Cleanup(func() { _ = held.Close() })
		require.NoError(t, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", held.Fd()), here))
		config := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(config, []byte(header+"reconcileInterval: 1s\n"), 0o600))
		p := start(t, "--config="+config, "--sim-fleet=/does/not/exist", "--driver-root-mount="+host, "--state-dir="+here)
		p.register(t)
		p.eventually(t, "/readyz", http.StatusOK, "ok\n")
		require.NoError(t, os.Rename(there, there+".covered"))
		require.NoError(t, os.Mkdir(there, 0o755))
		err = p.wait()
		require.ErrorIs(t, err, hostdir.ErrStale)
		require.ErrorContains(t, err, here)
	})
	t.Run("a port that is taken", func(t *testing.T) {
		t.Parallel()
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		p := start(t, "--sim-fleet=/does/not/exist", "--health-address="+listener.Addr().String())
		require.ErrorContains(t, p.wait(), "listen for health")
	})
	t.Run("a state directory that cannot be made", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		p := start(t, "--sim-fleet=/does/not/exist", "--state-dir="+file+"/state")
		require.ErrorContains(t, p.wait(), "make directory")
	})
}
