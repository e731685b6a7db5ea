// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/hostdir"
	"github.com/tranche-dra/tranche/pkg/podresources"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func TestDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "plugins_registry"), 0o750))
	gone := filepath.Join(dir, "gone")
	require.NoError(t, os.Mkdir(gone, 0o750))
	held, err := os.Open(gone) // as a bind mount holds it
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	require.NoError(t, os.Remove(gone))
	// The host has this directory at the same path, and another by now.
	covered := hostdir.Host{Root: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(covered.Root, dir), 0o750))
	moved := hostdir.Host{Root: t.TempDir()}
	for name, tc := range map[string]struct {
		check doctor.Examiner
		want  want
	}{
		"a directory of kubelet's":                 {doctor.KubeletDirectories(root, hostdir.Host{})[1], want{doctor.OK, "can write to " + root + "/plugins_registry", ""}},
		"a directory that kubelet has elsewhere":   {doctor.KubeletDirectories(root, hostdir.Host{})[0], want{doctor.Problem, "no such file", "--kubelet-root"}},
		"a state directory on a disk":              {doctor.StateDirectory(dir, hostdir.Host{}), want{doctor.OK, "can write to " + dir, ""}},
		"a state directory in memory":              {doctor.StateDirectory("/dev/shm", hostdir.Host{}), want{doctor.Warning, "in memory", "--state-dir"}},
		"a state directory that is missing":        {doctor.StateDirectory(dir+"/none", hostdir.Host{}), want{doctor.Problem, "no such file", "--state-dir"}},
		"a file in place of a directory":           {doctor.Directory{Path: file, Remedy: "r"}, want{doctor.Problem, "not a directory", "r"}},
		"a CDI directory":                          {doctor.CDIDirectory{Path: dir}, want{doctor.OK, "can write to " + dir, ""}},
		"a CDI directory that is missing":          {doctor.CDIDirectory{Path: dir + "/none"}, want{doctor.Warning, "no such file", "when it starts"}},
		"a CDI directory that is a file":           {doctor.CDIDirectory{Path: file}, want{doctor.Problem, "not a directory", "--cdi-root"}},
		"a CDI directory that was made anew there": {doctor.CDIDirectory{Path: fmt.Sprintf("/proc/self/fd/%d", held.Fd())}, want{doctor.Problem, "deleted on the host", "restart the driver's pod"}},
		"a state directory that was mounted over":  {doctor.StateDirectory(dir, covered), want{doctor.Problem, "the host has another one there", "restart the driver's pod"}},
		"a state directory that was moved":         {doctor.StateDirectory(dir, moved), want{doctor.Problem, "the host has none there", "restart the driver's pod"}},
		"a CDI directory that was mounted over":    {doctor.CDIDirectory{Path: dir, Host: covered}, want{doctor.Problem, "the host has another one there", "restart the driver's pod"}},
		"a directory of kubelet's that was moved":  {doctor.KubeletDirectories(root, moved)[1], want{doctor.Problem, "the host has none there", "restart the driver's pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireFindings(t, []want{tc.want}, tc.check.Examine(t.Context()))
		})
	}
}

// instance is a driver's registration socket.
type instance struct {
	registerapi.UnimplementedRegistrationServer
	name, endpoint string
}

func (i instance) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Name: i.name, Endpoint: i.endpoint}, nil
}

// plugin serves a registration socket, and the driver's own beside it.
func plugin(t *testing.T, root, suffix, name string) {
	t.Helper()
	endpoint := filepath.Join(root, "plugins", name, "dra"+suffix+".sock")
	serve(t, endpoint, func(*grpc.Server) {})
	serve(t, filepath.Join(root, "plugins_registry", driverName+suffix+"-reg.sock"), func(s *grpc.Server) {
		registerapi.RegisterRegistrationServer(s, instance{name: name, endpoint: endpoint})
	})
}

func TestRegistration(t *testing.T) {
	t.Parallel()
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(ready.Close)
	unready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "not registered with kubelet yet")
	}))
	t.Cleanup(unready.Close)
	address := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	registered := want{doctor.OK, "registered with kubelet", ""}
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, root string)
		metrics string
		want    []want
	}{
		"one instance, registered": {
			func(t *testing.T, root string) { plugin(t, root, "-a", driverName) }, address(ready),
			[]want{{doctor.OK, "a driver answers at ", ""}, registered},
		},
		"an instance that kubelet has not registered": {
			func(t *testing.T, root string) { plugin(t, root, "", driverName) }, address(unready),
			[]want{{doctor.OK, "a driver answers at ", ""}, {doctor.Problem, "not registered with kubelet yet", "log"}},
		},
		"a driver whose pod has another address": {
			func(t *testing.T, root string) { plugin(t, root, "-a", driverName) }, "127.0.0.1:1",
			[]want{{doctor.OK, "", ""}, {doctor.Skipped, "only told in the driver's pod", ""}},
		},
		"a driver without metrics": {
			func(t *testing.T, root string) { plugin(t, root, "-a", driverName) }, "",
			[]want{{doctor.OK, "", ""}, {doctor.Skipped, "no metrics address", ""}},
		},
		"the socket of a pod that was killed beside the one of today": {
			func(t *testing.T, root string) {
				abandoned(t, filepath.Join(root, "plugins_registry", driverName+"-a-reg.sock"))
				plugin(t, root, "-b", driverName)
			}, address(ready),
			[]want{{doctor.Warning, "-a-reg.sock", "killed"}, {doctor.OK, "dra-b.sock", ""}, registered},
		},
		"only the socket of a pod that was killed": {
			func(t *testing.T, root string) {
				abandoned(t, filepath.Join(root, "plugins_registry", driverName+"-a-reg.sock"))
			}, address(ready),
			[]want{{doctor.Warning, "", ""}, {doctor.Problem, "no driver answers", "logs ds/tranche-node"}},
		},
		"another driver at our socket": {
			func(t *testing.T, root string) { plugin(t, root, "-a", "gpu.other.dev") }, address(ready),
			[]want{{doctor.Warning, `it is "gpu.other.dev"`, ""}, {doctor.Problem, "no driver answers", ""}},
		},
		"an instance that registers and does not serve": {
			func(t *testing.T, root string) {
				serve(t, filepath.Join(root, "plugins_registry", driverName+"-reg.sock"), func(s *grpc.Server) {
					registerapi.RegisterRegistrationServer(s, instance{name: driverName, endpoint: root + "/none.sock"})
				})
			}, address(ready),
			[]want{{doctor.Warning, "call driver as kubelet would", ""}, {doctor.Problem, "no driver answers", ""}},
		},
		"no driver": {
			func(*testing.T, string) {}, address(ready), []want{{doctor.Problem, "no driver is there", "logs ds/tranche-node"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := shortDir(t)
			tc.prepare(t, root)
			check := doctor.Registration{KubeletRoot: root, Driver: driverName, MetricsAddress: tc.metrics}
			requireFindings(t, tc.want, check.Examine(t.Context()))
		})
	}
}

// kubelet lists devices of other plugins.
type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	devices []*podresourcesv1.ContainerDevices
}

func (k kubelet) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return &podresourcesv1.AllocatableResourcesResponse{Devices: k.devices}, nil
}

func TestOtherPlugins(t *testing.T) {
	t.Parallel()
	cards := cardsOf{cards: []card.Card{fixture.Card(0), fixture.Card(1)}}
	replica := &podresourcesv1.ContainerDevices{ResourceName: "nvidia.com/gpu", DeviceIds: []string{string(fixture.Card(1).UUID) + "::3"}}
	nic := &podresourcesv1.ContainerDevices{ResourceName: "example.com/nic", DeviceIds: []string{"eth0"}}
	for name, tc := range map[string]struct {
		devices []*podresourcesv1.ContainerDevices
		cards   cardsOf
		want    want
	}{
		"other devices only":                    {[]*podresourcesv1.ContainerDevices{nic}, cards, want{doctor.OK, "no other plugin serves a card", ""}},
		"a replica of a card":                   {[]*podresourcesv1.ContainerDevices{nic, replica}, cards, want{doctor.Problem, string(fixture.Card(1).UUID) + " is served by another device plugin, as nvidia.com/gpu", "remove that plugin"}},
		"the cards are unknown":                 {[]*podresourcesv1.ContainerDevices{replica}, cardsOf{err: errBroken}, want{doctor.Skipped, "kubelet answers", ""}},
		"a card without a name is not all IDs'": {[]*podresourcesv1.ContainerDevices{replica}, cardsOf{cards: []card.Card{{}}}, want{doctor.OK, "no other plugin", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := shortDir(t)
			serve(t, podresources.SocketIn(root), func(s *grpc.Server) {
				podresourcesv1.RegisterPodResourcesListerServer(s, kubelet{devices: tc.devices})
			})
			requireFindings(t, []want{tc.want}, doctor.OtherPlugins{KubeletRoot: root, Cards: tc.cards}.Examine(t.Context()))
		})
	}
	t.Run("kubelet does not answer", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		requireFindings(t, []want{{doctor.Problem, "unavailable", "mount " + root + "/pod-resources"}},
			doctor.OtherPlugins{KubeletRoot: root, Cards: cards}.Examine(t.Context()))
	})
}

func TestCards(t *testing.T) {
	t.Parallel()
	with := func(change func(*card.Card)) cardsOf {
		c := fixture.Card(0)
		change(&c)
		return cardsOf{cards: []card.Card{c}}
	}
	shared := want{doctor.OK, "can be shared, with 24576Mi", ""}
	for name, tc := range map[string]struct {
		cards cardsOf
		files files
		want  []want
	}{
		"two cards, both fine": {cardsOf{cards: []card.Card{fixture.Card(0), fixture.Card(1)}}, files{}, []want{shared, shared}},
		"a card that MIG has split": {
			with(func(c *card.Card) { c.WholeOnly = true }), files{}, []want{{doctor.OK, "for one claim at a time: it is split", ""}},
		},
		"a card whose memory is unknown": {
			with(func(c *card.Card) { c.Memory = 0 }), files{}, []want{{doctor.Warning, "its memory is unknown", "update"}},
		},
		"a card with faults": {
			with(func(c *card.Card) {
				c.Faults = []card.Fault{{Kind: "XidError", Message: "XID 79", Evict: true}, {Kind: "TooHot", Message: "99 C"}}
			}),
			files{},
			[]want{shared, {doctor.Problem, "XidError, its pods are stopped: XID 79", "reset"}, {doctor.Problem, "TooHot, no new pods go there: 99 C", "reset"}},
		},
		"a device node is missing": {
			cardsOf{cards: []card.Card{fixture.Card(0), fixture.Card(1)}},
			files{missing: fixture.Card(0).UUID},
			[]want{shared, {doctor.Problem, "/dev/nvidia0 is missing: load the driver", "pods on this card wait"}, shared},
		},
		"the driver's libraries are missing": {
			with(func(*card.Card) {}), files{common: errBroken}, []want{shared, {doctor.Problem, "broken", "pods with a claim wait"}},
		},
		"the driver's libraries are missing, and so is the runtime, which is told elsewhere": {
			with(func(*card.Card) {}), files{common: errBroken, runtime: libraries.ErrNotInstalled}, []want{shared},
		},
		"no card":                  {cardsOf{}, files{}, []want{{doctor.Warning, "no cards: looked in vain", "--driver-root"}}},
		"cards that do not answer": {cardsOf{err: errBroken}, files{}, []want{{doctor.Problem, "broken", "nvidia-smi"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtime := func() (cdi.Runtime, error) { return cdi.Runtime{}, tc.files.runtime }
			check := doctor.Cards{Lister: tc.cards, Files: tc.files, Runtime: runtime, WhyNone: func() string { return "looked in vain" }}
			requireFindings(t, tc.want, check.Examine(t.Context()))
		})
	}
}

func TestRecords(t *testing.T) {
	t.Parallel()
	record := func(name string, phase checkpoint.Phase) checkpoint.Record {
		return checkpoint.Record{Claim: share.Claim{UID: "uid-" + name, Namespace: "team", Name: name}, Phase: phase}
	}
	for name, tc := range map[string]struct {
		records []checkpoint.Record
		spoil   func(t *testing.T, dir string, store *checkpoint.Store)
		want    []want
	}{
		"none": {nil, nil, []want{{doctor.OK, "no claim holds a share", ""}}},
		"two, one on its way": {
			[]checkpoint.Record{record("a", checkpoint.Prepared), record("b", checkpoint.Preparing)},
			nil,
			[]want{{doctor.OK, "2 claims with shares: team/a, team/b (Preparing)", ""}},
		},
		"more than a line takes": {
			[]checkpoint.Record{
				record("a", checkpoint.Prepared), record("b", checkpoint.Prepared), record("c", checkpoint.Prepared), record("d", checkpoint.Prepared), record("e", checkpoint.Prepared),
				record("f", checkpoint.Prepared), record("g", checkpoint.Prepared), record("h", checkpoint.Prepared), record("i", checkpoint.Prepared),
			}, nil, []want{{doctor.OK, "team/h and 1 more", ""}},
		},
		"they are listed by name, whatever their UIDs": {
			[]checkpoint.Record{
				{Claim: share.Claim{UID: "1", Namespace: "team", Name: "z"}, Phase: checkpoint.Prepared},
				{Claim: share.Claim{UID: "2", Namespace: "team", Name: "a"}, Phase: checkpoint.Prepared},
			},
			nil,
			[]want{{doctor.OK, "2 claims with shares: team/a, team/z", ""}},
		},
		"damaged ones that were made again": {
			[]checkpoint.Record{record("a", checkpoint.Prepared), record("b", checkpoint.Prepared), record("c", checkpoint.Prepared)},
			func(t *testing.T, _ string, store *checkpoint.Store) {
				for _, name := range []string{"b", "a"} {
					_, err := store.SetAside("uid-" + name)
					require.NoError(t, err)
					_, err = store.Write(record(name, checkpoint.Prepared))
					require.NoError(t, err)
				}
			},
			[]want{
				{doctor.OK, "3 claims with shares: team/a, team/b, team/c", ""},
				{doctor.Warning, "/claims/damaged/uid-a.json (claim team/a), ", "then delete it"},
			},
		},
		"a damaged one, and one that was set aside before": {
			[]checkpoint.Record{record("a", checkpoint.Prepared), record("b", checkpoint.Prepared), record("c", checkpoint.Prepared)},
			func(t *testing.T, dir string, store *checkpoint.Store) {
				require.NoError(t, os.Truncate(filepath.Join(dir, "uid-a.json"), 10))
				_, err := store.SetAside("uid-b")
				require.NoError(t, err)
			},
			[]want{{doctor.OK, "1 claim with shares: team/c", ""}, {doctor.Warning, "uid-a", "delete the claim's pods"}, {doctor.Warning, "uid-b", "damaged"}},
		},
		"one of a newer driver": {
			nil, func(t *testing.T, dir string, _ *checkpoint.Store) {
				sum := sha256.Sum256([]byte("99 {}"))
				newer := fmt.Sprintf(`{"version":99,"checksum":"sha256:%x","record":{}}`, sum)
				require.NoError(t, os.WriteFile(filepath.Join(dir, "uid-n.json"), []byte(newer), 0o600))
			},
			[]want{{doctor.OK, "no claim", ""}, {doctor.Problem, "newer version", "run the newer driver again"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "claims")
			store, err := checkpoint.NewStore(dir, durable.Files{})
			require.NoError(t, err)
			for _, r := range tc.records {
				_, err := store.Write(r)
				require.NoError(t, err)
			}
			if tc.spoil != nil {
				tc.spoil(t, dir, store)
			}
			requireFindings(t, tc.want, doctor.Records(dir).Examine(t.Context()))
		})
	}
	t.Run("a driver that has never run leaves no trace of doctor", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "claims")
		requireFindings(t, []want{{doctor.OK, "no claim was ever prepared", ""}}, doctor.Records(dir).Examine(t.Context()))
		require.NoDirExists(t, dir)
	})
}
