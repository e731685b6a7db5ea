// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/podresources"
	"github.com/tranche-dra/tranche/pkg/slices"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// written is a file with that content.
func written(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// oneCard is a fleet file.
func oneCard(t *testing.T) string {
	t.Helper()
	return written(t, fmt.Sprintf(fleet, fixture.Card(0).UUID))
}

// published waits for the node's only card to be in the API server.
func (p *process) published(t *testing.T) resourceapi.Device {
	t.Helper()
	var devices []resourceapi.Device
	require.Eventually(t, func() bool {
		list, err := p.api.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		devices = nil
		for _, s := range list.Items {
			devices = append(devices, s.Spec.Devices...)
		}
		return len(devices) > 0
	}, patient, 10*time.Millisecond, "no card was published")
	require.Len(t, devices, 1)
	return devices[0]
}

// prepare asks as kubelet does, with less patience, and gives the error that it
// is told.
func (p *process) prepare(t *testing.T, claim *resourceapi.ResourceClaim) string {
	t.Helper()
	require.NoError(t, p.api.Tracker().Add(claim))
	conn := dial(t, "unix", filepath.Join(p.root, "kubelet/plugins/gpu.tranche.dev/dra-pod.sock"))
	ctx, cancel := context.WithTimeout(t.Context(), patient/4)
	defer cancel()
	answer, err := drav1.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{
		Claims: []*drav1.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}},
	})
	require.NoError(t, err)
	require.NoError(t, conn.Close(), "as a connection that stays would be waited for in the end")
	return answer.GetClaims()[string(claim.UID)].GetError()
}

// spec is where the container runtime finds the claim.
func (p *process) spec(claim *resourceapi.ResourceClaim) string {
	return cdi.NewSpecs(filepath.Join(p.root, "cdi"), durableFiles()).Path(string(claim.UID))
}

func TestSlotsAndReserveHoldForWhatIsPublishedAndWhatIsPrepared(t *testing.T) {
	t.Parallel()
	p := start(t, "--sim-fleet="+oneCard(t), "--slots=2", "--config="+written(t, header+"memoryReserve: 1Gi\n"))
	capacity := p.published(t).Capacity
	slots, memory := capacity[slices.CapacitySlots].Value, capacity[slices.CapacityMemory].Value
	require.EqualValues(t, 2, slots.Value())
	require.Zero(t, memory.Cmp(resource.MustParse("23Gi")), "%s of 24Gi", memory.String())
	for _, name := range []string{"c", "d"} {
		require.Empty(t, p.prepare(t, fixture.Claim(name, fixture.Result{Request: "gpu", Cores: 10, Memory: "1Gi"})))
	}
	require.Contains(t, p.prepare(t, fixture.Claim("e", fixture.Result{Request: "gpu", Cores: 10, Memory: "1Gi"})), "2 of slots")
}

func TestCardsAreListedBeforeAnythingIsServedOrHealed(t *testing.T) {
	t.Parallel()
	// Whoever reads the fleet waits until it is written.
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	p := start(t, "--sim-fleet="+path)
	pipe, err := os.OpenFile(path, os.O_WRONLY, 0) // returns once the fleet is being read
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(p.root, "kubelet"))
	require.ErrorIs(t, err, fs.ErrNotExist, "kubelet is not served yet")
	code, body := p.get(t, "/healthz")
	require.Zero(t, code, body)
	require.NoError(t, os.Rename(oneCard(t), path))
	_, err = fmt.Fprintf(pipe, fleet, fixture.Card(0).UUID)
	require.NoError(t, err)
	require.NoError(t, pipe.Close())
	require.Equal(t, fixture.Card(0).DeviceName(), p.published(t).Name)
}

func TestANodeWhoseCardsCannotBeListedIsNotReadyAndSaysWhy(t *testing.T) {
	t.Parallel()
	path := written(t, "cards: [{memory: 24Gi}\n") // a bracket is missing
	p := start(t, "--sim-fleet="+path)
	p.register(t)
	require.Eventually(t, func() bool {
		code, body := p.get(t, "/readyz")
		return code == http.StatusServiceUnavailable && body != "not registered with kubelet yet\n"
	}, patient, 10*time.Millisecond)
	_, body := p.get(t, "/readyz")
	require.Contains(t, body, "cards are not published yet: list cards: ")
	require.Contains(t, body, path)
	require.NoError(t, os.Rename(oneCard(t), path))
	p.eventually(t, "/readyz", http.StatusOK, "ok\n")
}

// kubelet tells of no pods, and how often it was asked.
type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	asked atomic.Int32
}

func (k *kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k.asked.Add(1)
	return &podresourcesv1.ListPodResourcesResponse{}, nil
}

func (p *process) serveKubelet(t *testing.T) *kubelet {
	t.Helper()
	socket := podresources.SocketIn(filepath.Join(p.root, "kubelet"))
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o750))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	k, server := &kubelet{}, grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, k)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return k
}

func TestAClaimThatIsGoneKeepsItsShareForTheGraceTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		grace string
		kept  bool
	}{
		"within the grace time": {"1h", true},
		"after it":              {"1ms", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "--sim-fleet="+oneCard(t), "--config="+written(t, header+"reconcileInterval: 1s\nstaleGrace: "+tc.grace+"\n"))
			k := p.serveKubelet(t)
			p.published(t)
			claim := fixture.Claim("c", fixture.Result{Request: "gpu", Cores: 10, Memory: "1Gi"})
			require.Empty(t, p.prepare(t, claim))
			require.FileExists(t, p.spec(claim))
			require.NoError(t, p.api.ResourceV1().ResourceClaims(claim.Namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
			if tc.kept {
				// One pass may be under way, one sees that the claim is gone, and the next would release it.
				before := k.asked.Load()
				require.Eventually(t, func() bool { return k.asked.Load() > before+3 }, patient, 10*time.Millisecond)
				require.FileExists(t, p.spec(claim))
				return
			}
			require.Eventually(t, func() bool {
				_, err := os.Stat(p.spec(claim))
				return errors.Is(err, fs.ErrNotExist)
			}, patient, 10*time.Millisecond)
		})
	}
}

func TestOnlyADirectoryThatIsMadeGetsAMode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, want fs.FileMode }{
		"one that is missing is made for all to pass":       {0, fs.ModeDir | 0o755},
		"one that everybody may write to stays as it is":    {fs.ModeDir | fs.ModeSticky | 0o777, fs.ModeDir | fs.ModeSticky | 0o777},
		"one that was closed by an administrator stays too": {fs.ModeDir | 0o700, fs.ModeDir | 0o700},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, config, err := parse(t, "", nil, "--node-name=n", "--state-dir="+t.TempDir()+"/state", "--cdi-root="+t.TempDir()+"/cdi")
			require.NoError(t, err)
			dirs := []string{config.StateDir}
			if tc.before != 0 {
				dirs = append(dirs, config.CDIRoot) // the umask decides on one that is made
				for _, dir := range dirs {
					require.NoError(t, os.Mkdir(dir, 0o700))
					require.NoError(t, os.Chmod(dir, tc.before))
				}
			}
			_, err = openStores(config)
			require.NoError(t, err)
			for _, dir := range dirs {
				info, err := os.Stat(dir)
				require.NoError(t, err)
				require.Equal(t, tc.want, info.Mode(), dir)
			}
		})
	}
}
