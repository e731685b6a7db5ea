// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/whatif"
	"github.com/tranche-dra/tranche/tests/golden"
)

func read(t *testing.T, file string) whatif.Objects {
	t.Helper()
	from, err := os.Open(file)
	require.NoError(t, err)
	defer from.Close() //nolint:errcheck // it was only read
	objects, err := whatif.Read(from, file)
	require.NoError(t, err)
	return objects
}

func policies(t *testing.T) []placement.Policies {
	t.Helper()
	var out []placement.Policies
	for _, text := range []string{"spread/binpack", "binpack", "fragmentation"} {
		p, err := placement.Parse(text)
		require.NoError(t, err)
		out = append(out, p)
	}
	return out
}

func TestCompare(t *testing.T) {
	t.Parallel()
	cluster, claims := read(t, "testdata/cluster.yaml"), read(t, "testdata/claims.yaml")
	report, err := whatif.Compare(t.Context(), &cluster, &claims, 3, policies(t))
	require.NoError(t, err)
	var table, text bytes.Buffer
	require.NoError(t, report.WriteTables(&table))
	golden.Equal(t, "team.golden.txt", table.Bytes())
	require.NoError(t, report.WriteJSON(&text))
	golden.Equal(t, "team.golden.json", text.Bytes())
}

func TestColumnsAreToldApart(t *testing.T) {
	t.Parallel()
	var table bytes.Buffer
	require.NoError(t, waiting(t, "").WriteTables(&table))
	header := regexp.MustCompile("  +").Split(strings.Split(table.String(), "\n")[2], -1)
	require.Len(t, header, 9)
	slices.Sort(header)
	require.Len(t, slices.Compact(header), 9)
}

func TestClaimsThatWaitAreTriedByThemselves(t *testing.T) {
	t.Parallel()
	cluster := read(t, "testdata/cluster.yaml")
	report, err := whatif.Compare(t.Context(), &cluster, nil, 1, policies(t)[:1])
	require.NoError(t, err)
	require.Equal(t, []whatif.Claim{{Name: "team/waits", Asked: 1, Placed: 1, On: []whatif.Place{{Node: "node-b", Card: "0"}}}}, report.Policies[0].Claims)
}

// The API server and kubectl write lists in different ways.
func TestEveryFormOfListIsRead(t *testing.T) {
	t.Parallel()
	const claim = `{"metadata": {"name": "a"}, "spec": {}}`
	for name, text := range map[string]string{
		"kubectl get -o json":     `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"}}]}`,
		"kubectl get --raw":       `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "items": [` + claim + `]}`,
		"objects between dashes":  "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\n---\n",
		"among other kinds":       "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\n",
		"a list in a list":        `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "items": [` + claim + `]}]}`,
		"a list that is empty":    `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "items": [` + claim + `]}, {"apiVersion": "v1", "kind": "PodList", "items": []}]}`,
		"windows ends of lines":   "apiVersion: resource.k8s.io/v1\r\nkind: ResourceClaim\r\nmetadata: {name: a}\r\n",
		"a comment comes first":   "# mine\n---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\n",
		"the same in another way": "kind: ResourceClaim\nmetadata:\n  name: a\napiVersion: resource.k8s.io/v1\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := whatif.Read(strings.NewReader(text), "f")
			require.NoError(t, err)
			require.Len(t, objects.Claims, 1)
			require.Equal(t, "a", objects.Claims[0].Name)
		})
	}
}

func TestWrongFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"not YAML":           {"a: b: c", "read f, document 1: "},
		"no object":          {"apiVersion: v1\nkind: Pod\n---\n- 1\n", "read f, document 2: it is no Kubernetes object"},
		"no kind":            {"a: b\n", "read f, document 1: it is no Kubernetes object: it has no kind"},
		"an older version":   {"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a, namespace: team}\n", "read f, document 1: ResourceClaim team/a: it is of resource.k8s.io/v1beta1: this version is not read: resource.k8s.io/v1 is"},
		"a field goes wrong": {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: 3}\n", "read f, document 1: item 1: ResourceSlice s: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := whatif.Read(strings.NewReader(tc.text), "f")
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestWhatCannotBeSimulatedIsSaid(t *testing.T) {
	t.Parallel()
	cluster := read(t, "testdata/cluster.yaml")
	try := func(t *testing.T, devices string) error {
		t.Helper()
		file := `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"}, "spec": {"devices": ` + devices + `}}`
		require.True(t, json.Valid([]byte(file)))
		objects, err := whatif.Read(strings.NewReader(file), "f")
		require.NoError(t, err)
		_, err = whatif.Compare(t.Context(), &cluster, &objects, 1, policies(t))
		return err
	}
	exactly := func(text string) string {
		return `{"requests": [{"name": "gpu", "exactly": ` + text + `}]}`
	}
	share := func(requests string) string {
		return exactly(`{"deviceClassName": "share.tranche.dev", "capacity": {"requests": ` + requests + `}}`)
	}
	for name, tc := range map[string]struct{ devices, want string }{
		"another class":      {exactly(`{"deviceClassName": "gpu.example.com"}`), `claim a: request gpu: device class "gpu.example.com" does not come with Tranche, and no file has it`},
		"alternatives":       {`{"requests": [{"name": "gpu", "firstAvailable": []}]}`, "firstAvailable is not simulated"},
		"all cards":          {exactly(`{"deviceClassName": "card.tranche.dev", "allocationMode": "All"}`), "allocationMode All is not simulated: give a count"},
		"too many cards":     {exactly(`{"deviceClassName": "card.tranche.dev", "count": 1000000000000}`), "count of 1000000000000: a claim holds at least 1 and at most 32"},
		"fewer than none":    {exactly(`{"deviceClassName": "card.tranche.dev", "count": -3}`), "count of -3: a claim holds at least 1"},
		"an administrator":   {exactly(`{"deviceClassName": "card.tranche.dev", "adminAccess": true}`), "adminAccess takes nothing of a card"},
		"slots":              {share(`{"cores": "30", "memory": "1Gi", "slots": "2"}`), "slots: a share names cores, memory and offlineCores only"},
		"another capacity":   {share(`{"cores": "30", "memory": "1Gi", "core": "2"}`), "core: a share names"},
		"half-named":         {share(`{"cores": "30"}`), "a share names both cores and memory"},
		"more than a card":   {share(`{"cores": "130", "memory": "1Gi"}`), "cores of 130: 0 to 100 percent of one card is right; for whole cards ask for class card.tranche.dev with count: N"},
		"no memory":          {share(`{"cores": "30", "memory": "0"}`), "memory of 0: from 256Mi"},
		"a broken selector":  {exactly(`{"deviceClassName": "card.tranche.dev", "selectors": [{"cel": {"expression": "device.nothing"}}]}`), `selector "device.nothing": `},
		"a broken config":    {`{"config": [{"opaque": {"driver": "gpu.tranche.dev", "parameters": {"kind": "Else"}}}], "requests": [{"name": "gpu", "exactly": {"deviceClassName": "card.tranche.dev"}}]}`, "read configuration"},
		"a bound constraint": {`{"constraints": [{"matchAttribute": "gpu.tranche.dev/numaNode"}], "requests": [{"name": "gpu", "exactly": {"deviceClassName": "card.tranche.dev"}}]}`, "claim a: constraints are not simulated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, try(t, tc.devices), tc.want)
		})
	}
}

func TestNothingToTryIsSaid(t *testing.T) {
	t.Parallel()
	cluster, claims := read(t, "testdata/cluster.yaml"), read(t, "testdata/claims.yaml")
	_, err := whatif.Compare(t.Context(), &claims, &claims, 1, policies(t))
	require.ErrorIs(t, err, whatif.ErrNoCards)
	_, err = whatif.Compare(t.Context(), &cluster, &whatif.Objects{}, 1, policies(t))
	require.ErrorIs(t, err, whatif.ErrNoClaims)
}

// Whatever is in a file, reading and trying it ends with an answer or an error.
func FuzzRead(f *testing.F) {
	// Small: an input that covers more is first made smaller, which takes long for a whole cluster.
	const claim = `{"requests":[{"name":"g","exactly":{"deviceClassName":"share.tranche.dev","capacity":{"requests":{"cores":"30","memory":"4Gi"}}}}]}`
	f.Add(`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"a"},"spec":{"devices":` + claim + `}}`)
	f.Add("apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec:\n  driver: gpu.tranche.dev\n  pool: {name: n}\n  devices:\n" +
		"  - {name: g, allowMultipleAllocations: true, capacity: {cores: {value: 100}, memory: {value: 8Gi}, slots: {value: 16}}}\n" +
		"---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: " + claim + "}\n")
	f.Add("apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: {driver: gpu.tranche.dev, pool: {name: n}, devices: [{name: g, taints: [{key: k, effect: NoSchedule}]}]}\n" +
		"---\n{apiVersion: v1, kind: Node, metadata: {name: n}, spec: {unschedulable: true, taints: [{key: k, effect: NoExecute}]}}\n" +
		"---\n{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, spec: {deviceSelector: {}, taint: {key: k, effect: None}}}\n" +
		"---\n{apiVersion: v1, kind: Pod, spec: {nodeSelector: {a: b}, tolerations: [{operator: Exists}], resourceClaims: [{name: g, resourceClaimName: a}]}}\n" +
		"---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: " + claim + "}\n")
	p := []placement.Policies{placement.Default()}
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := whatif.Read(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		report, err := whatif.Compare(t.Context(), &objects, nil, 2, p)
		if err == nil {
			require.NoError(t, report.WriteTables(&bytes.Buffer{}))
			require.NoError(t, report.WriteJSON(&bytes.Buffer{}))
		}
	})
}
