// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

const (
	node    = fixture.Pool
	patient = 20 * time.Second // a bound for tests that would hang, never a measure
	soon    = 5 * time.Millisecond
)

// quick makes what takes seconds in the product take milliseconds.
func quick() driver.Timing {
	return driver.Timing{
		SyncDelay: 10 * time.Millisecond, Relist: 25 * time.Millisecond, RetryFirst: 2 * time.Millisecond, RetryMost: 20 * time.Millisecond,
		PrepareBudget: patient, HealthResend: 20 * time.Millisecond, Sweep: 20 * time.Millisecond, Drain: patient,
	}
}

// machine is what stands around the driver in a test.
type machine struct {
	root     string
	api      *apiServer
	cards    *cards
	source   card.Source // instead of cards, where it is set
	limit    time.Duration
	preparer driver.Preparer
	plugins  *plugins
	events   *events
	counts   *counts
	config   driver.Config
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	// t.TempDir has the test's name in it, and sockets have short paths.
	root, err := os.MkdirTemp("", "k")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	return &machine{
		root: root, limit: patient, api: newAPIServer("v1.37.2"), cards: newCards(fixture.Card(0), fixture.Card(1)), preparer: &preparer{},
		plugins: &plugins{}, events: &events{}, counts: &counts{},
		config: driver.Config{NodeName: node, NodeUID: "node-uid", PodUID: "pod-1", KubeletRoot: root, Slots: 16, Timing: quick()},
	}
}

// instance is one running driver.
type instance struct {
	*driver.Driver
	// stop asks it to end; wait returns what Run returned.
	stop context.CancelFunc
	wait func() error
}

func (m *machine) start(t *testing.T) instance {
	t.Helper()
	return m.startAs(t, m.config.PodUID)
}

func (m *machine) startAs(t *testing.T, pod types.UID) instance {
	t.Helper()
	config := m.config
	config.PodUID = pod
	source := m.source
	if source == nil {
		source = m.cards
	}
	d, err := driver.New(config, driver.Dependencies{
		Client: m.api.client, Watcher: source, Inventory: driver.LimitListings(driver.NewInventory(source), m.limit), Preparer: m.preparer,
		Plugins: m.plugins, Events: m.events, Recorder: m.counts,
	})
	require.NoError(t, err)
	require.ErrorIs(t, d.Ready(), driver.ErrNotServing)
	require.ErrorIs(t, d.Alive(t.Context()), driver.ErrNotServing)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	var result error
	go func() {
		defer close(done)
		result = d.Run(ctx)
	}()
	i := instance{Driver: d, stop: cancel, wait: func() error { <-done; return result }}
	t.Cleanup(func() {
		cancel()
		<-done
	})
	eventually(t, "the driver serves kubelet", func() bool { return !errors.Is(d.Ready(), driver.ErrNotServing) })
	return i
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patient, soon, "never: %s", what)
}

// sockets lists what is left for kubelet to dial, without directories.
func (m *machine) sockets(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{"plugins/gpu.tranche.dev", "plugins_registry"} {
		entries, err := os.ReadDir(filepath.Join(m.root, dir))
		require.NoError(t, err)
		for _, e := range entries {
			found = append(found, e.Name())
		}
	}
	slices.Sort(found)
	return found
}

// register does what kubelet does with a socket in its registry: it asks who is
// there and tells the result.
func (m *machine) register(t *testing.T, pod types.UID, accepted bool) *registerapi.PluginInfo {
	t.Helper()
	client := registerapi.NewRegistrationClient(dial(t, filepath.Join(m.root, "plugins_registry", "gpu.tranche.dev-"+string(pod)+"-reg.sock")))
	info, err := client.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	_, err = client.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: accepted, Error: "because"})
	require.Equal(t, accepted, err == nil, "the helper answers a refusal with an error: %v", err)
	return info
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kubelet is a client of the DRA socket of one instance. As kubelet does, it
// closes its connection, with all calls on it, once the registration is gone.
func (m *machine) kubelet(t *testing.T, pod types.UID) drav1.DRAPluginClient {
	t.Helper()
	conn := dial(t, filepath.Join(m.root, "plugins", "gpu.tranche.dev", "dra-"+string(pod)+".sock"))
	registration := filepath.Join(m.root, "plugins_registry", "gpu.tranche.dev-"+string(pod)+"-reg.sock")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for t.Context().Err() == nil {
			if _, err := os.Lstat(registration); err != nil {
				_ = conn.Close()
				return
			}
			select {
			case <-t.Context().Done():
			case <-time.After(soon):
			}
		}
	}()
	t.Cleanup(func() { <-done })
	return drav1.NewDRAPluginClient(conn)
}

func named(claims ...*resourceapi.ResourceClaim) []*drav1.Claim {
	var out []*drav1.Claim
	for _, c := range claims {
		out = append(out, &drav1.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return out
}

// apiServer is a client with a fake server behind it.
type apiServer struct {
	client *fake.Clientset

	mu      sync.Mutex
	count   int
	writes  int
	drop    func(*resourceapi.Device) // what this server does not store
	away    error                     // what every call gets
	version error                     // what reading the version gets

	gitVersion string
}

func newAPIServer(gitVersion string) *apiServer {
	a := &apiServer{client: fake.NewClientset(), drop: func(*resourceapi.Device) {}}
	a.setVersion(gitVersion)
	a.client.PrependReactor("create", "resourceslices", a.store)
	a.client.PrependReactor("update", "resourceslices", a.store)
	a.client.PrependReactor("*", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if action.GetResource().Resource == "version" {
			a.tellVersion()
			if a.version != nil {
				return true, nil, a.version
			}
		}
		return a.away != nil, nil, a.away
	})
	return a
}

func (a *apiServer) setVersion(gitVersion string) {
	a.set(func(a *apiServer) { a.gitVersion = gitVersion })
}

// tellVersion changes the client's version where it is read: it has no lock.
func (a *apiServer) tellVersion() {
	discovery := a.client.Discovery().(*fakediscovery.FakeDiscovery)
	if old := discovery.FakedServerVersion; old == nil || old.GitVersion != a.gitVersion {
		discovery.FakedServerVersion = &version.Info{GitVersion: a.gitVersion}
	}
}

// set changes the server while it runs.
func (a *apiServer) set(change func(*apiServer)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

// store does what a server does before it stores: names, versions, and fields
// whose feature is off.
func (a *apiServer) store(action k8stesting.Action) (bool, runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	slice := action.(k8stesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
	a.count++
	a.writes++
	slice.ResourceVersion = strconv.Itoa(a.count)
	if slice.Name == "" {
		slice.Name = slice.GenerateName + strconv.Itoa(a.count)
		slice.UID = types.UID(slice.Name)
	}
	for i := range slice.Spec.Devices {
		a.drop(&slice.Spec.Devices[i])
	}
	return false, nil, nil
}

func (a *apiServer) written() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes
}

func (a *apiServer) slices(t *testing.T) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := a.client.Tracker().List(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"), "")
	require.NoError(t, err)
	return list.(*resourceapi.ResourceSliceList).Items
}

// devices are those of all slices, by name.
func (a *apiServer) devices(t *testing.T) map[string]resourceapi.Device {
	t.Helper()
	out := map[string]resourceapi.Device{}
	for _, s := range a.slices(t) {
		for _, d := range s.Spec.Devices {
			out[d.Name] = d
		}
	}
	return out
}

func (a *apiServer) deleteSlices(t *testing.T) {
	t.Helper()
	for _, s := range a.slices(t) {
		require.NoError(t, a.client.ResourceV1().ResourceSlices().Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
	}
}

func (a *apiServer) hasCards(t *testing.T, n int) func() bool {
	t.Helper()
	return func() bool { return len(a.slices(t)) == 1 && len(a.devices(t)) == n }
}

func isShared(d resourceapi.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

func (a *apiServer) add(t *testing.T, claims ...*resourceapi.ResourceClaim) {
	t.Helper()
	for _, c := range claims {
		require.NoError(t, a.client.Tracker().Add(c))
	}
}

// cards is a source whose cards a test changes.
type cards struct {
	mu     sync.Mutex
	list   []card.Card
	err    error
	notify func(card.Event)
}

func newCards(list ...card.Card) *cards { return &cards{list: list} }

func (c *cards) Cards(context.Context) ([]card.Card, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list), c.err
}

func (c *cards) Watch(ctx context.Context, notify func(card.Event)) error {
	c.mu.Lock()
	c.notify = notify
	c.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (c *cards) set(err error, list ...card.Card) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if err == nil {
		c.list = list
	}
	if c.notify != nil {
		c.notify(card.Event{Reason: "changed"})
	}
}

// preparer answers as a test says; without a word it prepares every result.
type preparer struct {
	mu        sync.Mutex
	prepare   func(ctx context.Context, claim *resourceapi.ResourceClaim) ([]prepare.Prepared, error)
	unprepare func(claim share.Claim) error
	prepared  []string
}

func (p *preparer) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
	p.mu.Lock()
	p.prepared = append(p.prepared, claim.Name)
	do := p.prepare
	p.mu.Unlock()
	if do != nil {
		return do(ctx, claim)
	}
	return all(claim), nil
}

func all(claim *resourceapi.ResourceClaim) []prepare.Prepared {
	var out []prepare.Prepared
	for i, r := range claim.Status.Allocation.Devices.Results {
		p := prepare.Prepared{CDIDeviceID: fmt.Sprintf("gpu.tranche.dev/share=%s-%d", claim.Name, i)}
		p.Request, p.Pool, p.Device = r.Request, r.Pool, r.Device
		if r.ShareID != nil {
			p.ShareID = string(*r.ShareID)
		}
		out = append(out, p)
	}
	return out
}

func (p *preparer) Unprepare(_ context.Context, claim share.Claim) error {
	if p.unprepare != nil {
		return p.unprepare(claim)
	}
	return nil
}

// times tells how often a claim was tried.
func (p *preparer) times(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, tried := range p.prepared {
		if tried == name {
			n++
		}
	}
	return n
}

// plugins are the device plugins of the node.
type plugins struct {
	mu      sync.Mutex
	devices map[string][]string
	err     error
}

func (p *plugins) Allocatable(context.Context) (map[string][]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.devices, p.err
}

func (p *plugins) set(devices map[string][]string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices, p.err = devices, err
}

// events remembers what people were told.
type events struct {
	mu   sync.Mutex
	text []string
}

func (e *events) Claim(claim share.Claim, reason, message string) {
	e.add(claim.String() + " " + reason + " " + message)
}

func (e *events) Pod(pod types.NamespacedName, uid types.UID, reason, message string) {
	e.add("pod " + pod.String() + " " + string(uid) + " " + reason + " " + message)
}

func (e *events) Node(reason, message string) { e.add("node " + reason + " " + message) }

func (e *events) add(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = append(e.text, text)
}

// with are the events that contain all of the words.
func (e *events) with(words ...string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.text), func(text string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	})
}

// counts remembers what was counted.
type counts struct {
	mu                                               sync.Mutex
	prepared, unprepared, published, listed, inSlice map[string]int
}

func (c *counts) count(m *map[string]int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[cmp.Or(map[bool]string{true: "failed"}[err != nil], "done")]++
}

func (c *counts) PrepareDone(_ time.Duration, err error)   { c.count(&c.prepared, err) }
func (c *counts) UnprepareDone(_ time.Duration, err error) { c.count(&c.unprepared, err) }
func (c *counts) PublishDone(err error)                    { c.count(&c.published, err) }
func (c *counts) CardsListed(_ []card.Card, err error)     { c.count(&c.listed, err) }
func (c *counts) CardsPublished(int)                       { c.count(&c.inSlice, nil) }
func (c *counts) of(m *map[string]int, key string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (*m)[key]
}

type passing struct{ error }

func (passing) Transient() bool { return true }

// brokenWatch lists cards and cannot watch them.
type brokenWatch struct {
	*cards
	tries atomic.Int32
}

func (b *brokenWatch) Watch(context.Context, func(card.Event)) error {
	b.tries.Add(1)
	return errors.New("no more inotify watches")
}
