// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/view"
	"github.com/tranche-dra/tranche/tests/golden"
)

// load reads a file of several documents.
func load(t *testing.T, name string) view.Objects {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	var o view.Objects
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		var head struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(document), &head))
		switch head.Kind {
		case "ResourceSlice":
			o.Slices = append(o.Slices, decode[resourceapi.ResourceSlice](t, document))
		case "ResourceClaim":
			o.Claims = append(o.Claims, decode[resourceapi.ResourceClaim](t, document))
		case "Pod":
			o.Pods = append(o.Pods, decode[corev1.Pod](t, document))
		default:
			require.Failf(t, "unexpected kind", "%q", head.Kind)
		}
	}
	return o
}

func decode[T any](t *testing.T, document string) T {
	t.Helper()
	var object T
	require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object))
	return object
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"share-a-card", "odd-ones", "nothing"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o view.Objects
			if name != "nothing" {
				o = load(t, name)
			}
			snapshot := view.Of(o)
			var tables, asJSON bytes.Buffer
			require.NoError(t, snapshot.WriteTables(&tables))
			require.NoError(t, snapshot.WriteJSON(&asJSON))
			golden.Equal(t, name+".golden.txt", tables.Bytes())
			golden.Equal(t, name+".golden.json", asJSON.Bytes())
		})
	}
}

func TestOrderOfTheObjectsDoesNotShow(t *testing.T) {
	t.Parallel()
	o := load(t, "odd-ones")
	want := view.Of(o)
	reversed := view.Objects{Slices: reverse(o.Slices), Claims: reverse(o.Claims), Pods: reverse(o.Pods)}
	require.Equal(t, asJSON(t, want), asJSON(t, view.Of(reversed)))
}

func TestTheObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	o, same := load(t, "odd-ones"), load(t, "odd-ones")
	view.Of(o)
	require.Equal(t, same, o)
}

func TestWhatIsFree(t *testing.T) {
	t.Parallel()
	cards := view.Of(load(t, "share-a-card")).Cards
	require.Len(t, cards, 2)
	require.Equal(t, &view.Amount[card.Percent]{Free: 0, Total: 100}, cards[0].Cores)
	require.Equal(t, &view.Amount[card.MiB]{Free: 24576 - 8192 - 8000 - 4096, Total: 24576}, cards[0].Memory)
	require.Equal(t, &view.Amount[int]{Free: 13, Total: 16}, cards[0].Slots)
	require.Equal(t, &view.Amount[card.Percent]{Free: 100, Total: 100}, cards[1].Cores)
	require.Equal(t, &view.Amount[card.Percent]{Free: 40, Total: 100}, cards[1].OfflineCores)
}

func TestPolicyAndClass(t *testing.T) {
	t.Parallel()
	const ours = `"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig"`
	tests := map[string]struct {
		configs []string
		offline string
		policy  share.Policy
		class   share.Class
		fails   bool
	}{
		"nobody says anything: the node decides": {class: share.NoClass},
		"the later one wins field by field": {
			configs: []string{`{` + ours + `,"policy":"fixed-share","class":"online"}`, `{` + ours + `,"policy":"best-effort"}`},
			policy:  share.BestEffort, class: share.Online,
		},
		"offline compute makes an offline share": {offline: "20", class: share.Offline},
		"a class that is named wins over offline compute": {
			configs: []string{`{` + ours + `,"class":"none"}`}, offline: "20", class: share.NoClass,
		},
		"a configuration that cannot be read is told, not guessed": {
			configs: []string{`{` + ours + `,"polcy":"fixed-share"}`}, fails: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := load(t, "share-a-card")
			o.Claims = o.Claims[len(o.Claims)-1:]
			devices := &o.Claims[0].Status.Allocation.Devices
			devices.Results[0].ConsumedCapacity["offlineCores"] = resourceQuantity(t, test.offline)
			for _, raw := range test.configs {
				var c resourceapi.DeviceAllocationConfiguration
				c.Source = resourceapi.AllocationConfigSourceClass
				c.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: "gpu.tranche.dev"}
				c.Opaque.Parameters.Raw = []byte(raw)
				devices.Config = append(devices.Config, c)
			}
			got := view.Of(o).Shares[0]
			require.Equal(t, test.policy, got.Policy)
			require.Equal(t, test.class, got.Class)
			require.Equal(t, test.fails, got.ConfigError != "", got.ConfigError)
		})
	}
}

// The node's default was chosen when the share was prepared, and its arbiter tells of it.
func TestThePolicyOfAPreparedShare(t *testing.T) {
	t.Parallel()
	const told = `{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareStatus","policy":"native-burst-share","class":"none","from":"2026-01-01T00:00:00Z"}`
	another := "2b9a4a2e-0000-4000-8000-000000000000"
	for name, test := range map[string]struct {
		data   string
		change func(*resourceapi.AllocatedDeviceStatus)
		policy share.Policy
	}{
		"that was measured":              {told, nil, share.NativeBurst},
		"of which nothing is told":       {"", nil, ""},
		"of which something else is":     {`{"kind":"Other","policy":"fixed-share"}`, nil, ""},
		"of which nonsense is told":      {`{"kind":"ShareStatus","policy":5}`, nil, ""},
		"beside another of the card":     {told, func(d *resourceapi.AllocatedDeviceStatus) { d.ShareID = &another }, ""},
		"beside one of another card":     {told, func(d *resourceapi.AllocatedDeviceStatus) { d.Device = "other" }, ""},
		"beside one of another driver's": {told, func(d *resourceapi.AllocatedDeviceStatus) { d.Driver = "gpu.example.com" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := load(t, "share-a-card")
			o.Claims = o.Claims[len(o.Claims)-1:]
			result := &o.Claims[0].Status.Allocation.Devices.Results[0]
			id := string(*result.ShareID)
			device := resourceapi.AllocatedDeviceStatus{Driver: result.Driver, Pool: result.Pool, Device: result.Device, ShareID: &id}
			if test.data != "" {
				device.Data = &runtime.RawExtension{Raw: []byte(test.data)}
			}
			if test.change != nil {
				test.change(&device)
			}
			o.Claims[0].Status.Devices = append(o.Claims[0].Status.Devices, device)
			require.Equal(t, test.policy, view.Of(o).Shares[0].Policy)
		})
	}
}

func TestWritersSayWhatFailed(t *testing.T) {
	t.Parallel()
	s := view.Of(load(t, "share-a-card"))
	broken := brokenWriter{errors.New("pipe is closed")}
	require.ErrorIs(t, s.WriteTables(broken), broken.err)
	require.ErrorIs(t, s.WriteCards(broken), broken.err)
	require.ErrorIs(t, s.WriteShares(broken), broken.err)
	require.ErrorIs(t, s.WriteJSON(broken), broken.err)
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func asJSON(t *testing.T, s view.Snapshot) string {
	t.Helper()
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	return string(raw)
}
