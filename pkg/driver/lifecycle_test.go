// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func TestACleanEndLeavesNoSocketsAndKeepsTheSlices(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	d := m.start(t)
	eventually(t, "published", m.api.hasCards(t, 2))
	m.register(t, "pod-1", true)
	require.Equal(t, []string{"dra-pod-1.sock", "gpu.tranche.dev-pod-1-reg.sock"}, m.sockets(t))
	d.stop()
	require.NoError(t, d.wait())
	require.Empty(t, m.sockets(t))
	require.ErrorIs(t, d.Ready(), driver.ErrNotServing)
	require.ErrorIs(t, d.Alive(t.Context()), driver.ErrNotServing)
	require.Len(t, m.api.devices(t), 2, "kubelet removes the slices if no other instance comes")
}

func TestAnEndBeforeTheAPIServerWasSeen(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.api.away = errors.New("no route to host")
	d := m.start(t)
	d.stop()
	require.NoError(t, d.wait())
	require.Empty(t, m.sockets(t))
}

func TestCallsUnderWayAreFinishedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	entered, release := make(chan struct{}), make(chan struct{})
	m.preparer = &preparer{prepare: func(_ context.Context, c *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		close(entered)
		<-release
		return all(c), nil
	}}
	c := claim("c")
	m.api.add(t, c)
	d := m.start(t)
	kubelet := m.kubelet(t, "pod-1")
	answered := make(chan error, 1)
	go func() { answered <- prepareBy(t.Context(), kubelet, c) }()
	<-entered
	d.stop()
	eventually(t, "the driver has begun to stop", func() bool { return driver.IsDraining(d.Driver) })
	require.Contains(t, m.sockets(t), "gpu.tranche.dev-pod-1-reg.sock", "without it kubelet would cut the call")
	close(release)
	require.NoError(t, <-answered)
	require.NoError(t, d.wait())
	require.Empty(t, m.sockets(t))
}

func TestTheDriverServesUntilKubeletHasLetGo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	d := m.start(t)
	conn := dial(t, filepath.Join(m.root, "plugins", driver.Name, "dra-pod-1.sock"))
	call := func() error {
		_, err := drav1.NewDRAPluginClient(conn).NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{})
		return err
	}
	require.NoError(t, call())
	d.stop()
	eventually(t, "the registration is gone", func() bool { return len(m.sockets(t)) == 1 })
	for range 20 {
		require.NoError(t, call(), "answers may be under way as long as kubelet is connected")
	}
	require.NoError(t, conn.Close())
	require.NoError(t, d.wait())
	require.Empty(t, m.sockets(t))
}

// prepareBy has kubelet ask for a claim of one card.
func prepareBy(ctx context.Context, kubelet drav1.DRAPluginClient, c *resourceapi.ResourceClaim) error {
	answer, err := kubelet.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{Claims: named(c)})
	if err == nil && len(answer.Claims[string(c.UID)].Devices) != 1 {
		err = errors.New(answer.String())
	}
	return err
}

func TestACallThatComesWhileTheLastAnswerLeavesIsAnsweredToo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Timing.Answer = time.Second
	entered, release := make(chan struct{}), make(chan struct{})
	m.preparer = &preparer{prepare: func(_ context.Context, c *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		entered <- struct{}{}
		<-release
		return all(c), nil
	}}
	c := claim("c")
	m.api.add(t, c)
	d := m.start(t)
	kubelet := m.kubelet(t, "pod-1")
	answered := make(chan error)
	call := func() { answered <- prepareBy(t.Context(), kubelet, c) }
	go call()
	<-entered
	d.stop()
	eventually(t, "the driver has begun to stop", func() bool { return driver.IsDraining(d.Driver) })
	release <- struct{}{}
	require.NoError(t, <-answered)
	go call()
	<-entered
	require.Never(t, func() bool { return !slices.Contains(m.sockets(t), "gpu.tranche.dev-pod-1-reg.sock") },
		2*m.config.Timing.Answer, m.config.Timing.Answer/10, "without it kubelet would cut the call")
	release <- struct{}{}
	require.NoError(t, <-answered)
	require.NoError(t, d.wait())
}

func TestATryGoesOnWhileTheDriverDrains(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var tries atomic.Int32
	var d instance
	stopped := make(chan struct{})
	m.preparer = &preparer{prepare: func(_ context.Context, c *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		if tries.Add(1) == 1 {
			return nil, passing{errors.New("card is away")}
		}
		<-stopped
		if tries.Load() < 4 {
			return nil, passing{errors.New("card is still away")}
		}
		return all(c), nil
	}}
	c := claim("c")
	m.api.add(t, c)
	d = m.start(t)
	kubelet := m.kubelet(t, "pod-1")
	answered := make(chan error, 1)
	go func() { answered <- prepareBy(t.Context(), kubelet, c) }()
	eventually(t, "the claim was tried", func() bool { return tries.Load() > 0 })
	d.stop()
	eventually(t, "the driver has begun to stop", func() bool { return driver.IsDraining(d.Driver) })
	close(stopped)
	require.NoError(t, <-answered)
	require.NoError(t, d.wait())
}

func TestATryThatWouldWaitGivesUpAtTheEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Timing.RetryFirst, m.config.Timing.RetryMost = patient, patient
	m.config.Timing.Drain = 3 * time.Second
	tried := make(chan struct{})
	m.preparer = &preparer{prepare: func(context.Context, *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		close(tried)
		return nil, passing{errors.New("card is away")}
	}}
	c := claim("c")
	m.api.add(t, c)
	d := m.start(t)
	kubelet := m.kubelet(t, "pod-1")
	answered := make(chan error, 1)
	go func() { answered <- prepareBy(t.Context(), kubelet, c) }()
	<-tried
	d.stop()
	require.ErrorContains(t, <-answered, "card is away (tried 1 times, the driver is stopping)")
	require.NoError(t, d.wait())
}

func TestTwoInstancesShareTheNodeDuringARollingUpdate(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := t.TempDir()
	startAs := func(pod types.UID) (instance, *fixture.Node) {
		n, err := fixture.NewNode(dir, 2, "boot", durable.Files{})
		require.NoError(t, err)
		m.preparer = n
		return m.startAs(t, pod), n
	}
	older, _ := startAs("old")
	m.register(t, "old", true)
	c, d := claim("c"), claim("d")
	m.api.add(t, c, d)
	call := func(pod types.UID, c *resourceapi.ResourceClaim) string {
		answer, err := m.kubelet(t, pod).NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(c)})
		require.NoError(t, err)
		require.Empty(t, answer.Claims[string(c.UID)].Error)
		return answer.Claims[string(c.UID)].Devices[0].CdiDeviceIds[0]
	}
	first := call("old", c)
	newer, _ := startAs("new")
	require.Len(t, m.sockets(t), 4)
	m.register(t, "new", true)
	require.Equal(t, first, call("new", c), "prepared by one, asked again of the other")
	call("new", d)
	undo := func(pod types.UID, c *resourceapi.ResourceClaim) {
		answer, err := m.kubelet(t, pod).NodeUnprepareResources(t.Context(), &drav1.NodeUnprepareResourcesRequest{Claims: named(c)})
		require.NoError(t, err)
		require.Empty(t, answer.Claims[string(c.UID)].Error)
	}
	undo("new", c)
	undo("old", d)
	eventually(t, "the newer one is ready", func() bool { return newer.Ready() == nil })
	older.stop()
	require.NoError(t, older.wait())
	require.Equal(t, []string{"dra-new.sock", "gpu.tranche.dev-new-reg.sock"}, m.sockets(t), "the other's sockets stay")
	require.NoError(t, newer.Alive(t.Context()))
	m.api.deleteSlices(t)
	eventually(t, "the newer one goes on publishing", m.api.hasCards(t, 2))
	left, err := os.ReadDir(filepath.Join(dir, "cdi"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSocketsOfKilledPodsAreRemoved(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	plugins, registry := filepath.Join(m.root, "plugins", driver.Name), filepath.Join(m.root, "plugins_registry")
	require.NoError(t, os.MkdirAll(plugins, 0o750))
	require.NoError(t, os.MkdirAll(registry, 0o750))
	listen := func(dir, name string, killed bool, age time.Duration) {
		path := filepath.Join(dir, name)
		listener, err := net.Listen("unix", path)
		require.NoError(t, err)
		born := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, born, born))
		if killed {
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			require.NoError(t, listener.Close())
			return
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
	const old, fresh = time.Minute, 0
	listen(plugins, "dra-killed.sock", true, old)
	listen(registry, "gpu.tranche.dev-killed-reg.sock", true, old)
	listen(registry, "gpu.tranche.dev-reg.sock", true, old)
	listen(plugins, "dra-alive.sock", false, old)
	listen(registry, "gpu.tranche.dev-alive-reg.sock", false, old)
	listen(registry, "other.example.com-reg.sock", true, old)
	listen(registry, "gpu.tranche.dev.example.com-reg.sock", true, old)
	listen(plugins, "dra-starting.sock", true, fresh) // may be between bind and listen
	require.NoError(t, os.WriteFile(filepath.Join(plugins, "dra-file.sock"), nil, 0o600))
	m.start(t)
	require.Equal(t, []string{
		"dra-alive.sock", "dra-file.sock", "dra-pod-1.sock", "dra-starting.sock",
		"gpu.tranche.dev-alive-reg.sock", "gpu.tranche.dev-pod-1-reg.sock",
		"gpu.tranche.dev.example.com-reg.sock", "other.example.com-reg.sock",
	}, m.sockets(t))
	t.Run("one that is too busy to be dialled is not abandoned", func(t *testing.T) {
		path := filepath.Join(plugins, "dra-busy.sock")
		busy(t, path)
		born := time.Now().Add(-old)
		require.NoError(t, os.Chtimes(path, born, born))
		m.startAs(t, "pod-2") // which looks for abandoned ones before it serves
		require.FileExists(t, path)
	})
	t.Run("later ones too", func(t *testing.T) {
		listen(plugins, "dra-later.sock", true, old)
		eventually(t, "removed", func() bool {
			_, err := os.Lstat(filepath.Join(plugins, "dra-later.sock"))
			return os.IsNotExist(err)
		})
	})
}

// busy makes a socket that takes no further connection at present.
func busy(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, unix.Listen(fd, 0))
	var d net.Dialer
	for {
		conn, err := d.DialContext(t.Context(), "unix", path)
		if err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

func TestARestartedContainerOfTheSamePodTakesItsSocketsOver(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	plugins := filepath.Join(m.root, "plugins", driver.Name)
	require.NoError(t, os.MkdirAll(plugins, 0o750))
	listener, err := net.Listen("unix", filepath.Join(plugins, "dra-pod-1.sock"))
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	d := m.start(t)
	require.NoError(t, d.Alive(t.Context()))
}

func TestLongKubeletRoots(t *testing.T) {
	t.Parallel()
	const podUID = "8b101b5f-9bfc-453d-9d43-83ec3d61b3d8"
	for name, tc := range map[string]struct {
		length int
		dra    string
		err    string
	}{
		"a usual one has the pod's UID in its sockets":   {20, "dra-" + podUID + ".sock", ""},
		"the longest that has it":                        {28, "dra-" + podUID + ".sock", ""},
		"a longer one has a digest":                      {29, "dra-031c35002c.sock", ""},
		"the longest of all":                             {54, "dra-031c35002c.sock", ""},
		"one more byte is refused, with what is allowed": {55, "", "it has 55 bytes and may have at most 54"},
		"a very long one is refused":                     {200, "", "may have at most 54"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.root = filepath.Join(m.root, strings.Repeat("r", tc.length-len(m.root)-1))
			m.config.KubeletRoot, m.config.PodUID = m.root, podUID
			if tc.err != "" {
				_, err := driver.New(m.config, driver.Dependencies{Client: m.api.client, Inventory: driver.NewInventory(m.cards)})
				require.ErrorIs(t, err, driver.ErrPathTooLong)
				require.ErrorContains(t, err, tc.err)
				return
			}
			d := m.start(t)
			require.Contains(t, m.sockets(t), tc.dra)
			require.NoError(t, d.Alive(t.Context()))
			d.stop()
			require.NoError(t, d.wait())
			require.Empty(t, m.sockets(t))
		})
	}
}

func TestWithoutANodeNameNothingStarts(t *testing.T) {
	t.Parallel()
	_, err := driver.New(driver.Config{KubeletRoot: "/k"}, driver.Dependencies{})
	require.ErrorContains(t, err, "node's name")
}

func TestAnErrorThatOnlyANewProcessCanHealEndsTheDriver(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	d := m.start(t)
	plugin := driver.PluginOf(d.Driver)
	plugin.HandleError(t.Context(), errors.Join(errors.New("stale"), kubeletplugin.ErrRecoverable), "health")
	require.NoError(t, d.Alive(t.Context()), "a recoverable one does not")
	plugin.HandleError(t.Context(), errors.New("accept: too many open files"), "DRA gRPC server failed")
	require.EqualError(t, d.wait(), "DRA gRPC server failed: accept: too many open files")
	require.Empty(t, m.sockets(t))
}

func TestADirectoryThatCannotBeMadeEndsTheDriver(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	require.NoError(t, os.WriteFile(filepath.Join(m.root, "plugins"), nil, 0o600))
	d, err := driver.New(m.config, driver.Dependencies{Client: m.api.client, Inventory: driver.NewInventory(m.cards)})
	require.NoError(t, err)
	require.ErrorContains(t, d.Run(t.Context()), "make directory for sockets")
}

func TestLivenessDialsTheSocketsByTheirPaths(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	d := m.start(t)
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, driver.NewHealthServer(d.Driver))
	socket := filepath.Join(m.root, "health")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	check := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		answer, err := grpc_health_v1.NewHealthClient(dial(t, socket)).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		return answer.Status
	}
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, check())
	removed := filepath.Join(m.root, "plugins", driver.Name, "dra-pod-1.sock")
	require.NoError(t, os.Remove(removed))
	require.ErrorContains(t, d.Alive(t.Context()), removed)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, check())
	require.Zero(t, m.counts.of(&m.counts.prepared, "done"), "asking ourselves is not counted")
}

func TestASourceThatCannotWatchIsAskedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	broken := &brokenWatch{cards: m.cards}
	d, err := driver.New(m.config, driver.Dependencies{
		Client: m.api.client, Watcher: broken, Inventory: driver.NewInventory(m.cards), Preparer: m.preparer,
		Plugins: m.plugins, Events: m.events, Recorder: m.counts,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	eventually(t, "watched a third time", func() bool { return broken.tries.Load() > 2 })
	eventually(t, "cards are published all the same", m.api.hasCards(t, 2))
	cancel()
	require.NoError(t, <-done)
}

func TestACallThatHangsDoesNotKeepTheDriverFromEnding(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Timing.Drain = soon
	entered := make(chan struct{})
	m.preparer = &preparer{prepare: func(ctx context.Context, _ *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	c := claim("c")
	m.api.add(t, c)
	d := m.start(t)
	kubelet := m.kubelet(t, "pod-1")
	cut := make(chan error, 1)
	go func() {
		_, err := kubelet.NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(c)})
		cut <- err
	}()
	<-entered
	d.stop()
	require.NoError(t, d.wait())
	require.Error(t, <-cut)
	require.Empty(t, m.sockets(t))
}
