// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/share"
)

const nodeHead = "apiVersion: tranche.dev/v1alpha1\nkind: NodeConfig\n"

func TestDecodeNodeConfig(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ raw, err string }{
		"an empty config":                   {nodeHead, ""},
		"a document mark and a comment":     {"# of pool a\n---\n" + nodeHead, ""},
		"an empty document at the end":      {nodeHead + "---\n# nothing\n", ""},
		"JSON":                              {`{"apiVersion":"tranche.dev/v1alpha1","kind":"NodeConfig","slotsPerCard":4}`, ""},
		"two documents":                     {nodeHead + "---\n" + nodeHead, "exactly one document is expected, found several"},
		"comments only":                     {"# nothing\n---\n", "exactly one document is expected, found none"},
		"an empty file":                     {"", "exactly one document is expected, found none"},
		"an unknown field":                  {nodeHead + "slots: 4\n", `unknown field "slots"`},
		"a field in another case":           {nodeHead + "cdiroot: /x\n", `unknown field "cdiroot"`},
		"a field given twice":               {nodeHead + "nodeName: a\nnodeName: b\n", `key "nodeName" already set`},
		"a duration without unit":           {nodeHead + "staleGrace: 5\n", "decode NodeConfig"},
		"a quantity that is none":           {nodeHead + "memoryReserve: 5 pounds\n", "decode NodeConfig"},
		"a text where a number belongs":     {nodeHead + "slotsPerCard: many\n", "NodeConfig.slotsPerCard"},
		"a ShareConfig":                     {"apiVersion: tranche.dev/v1alpha1\nkind: ShareConfig\n", `want apiVersion "tranche.dev/v1alpha1", kind "NodeConfig"`},
		"YAML that is not even that":        {"{", "decode NodeConfig"},
		"a tab where white space is needed": {nodeHead + "\tnodeName: a\n", "decode NodeConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := v1alpha1.DecodeNodeConfig([]byte(tc.raw))
			if tc.err == "" {
				require.NoError(t, err)
				require.NotNil(t, c)
				return
			}
			require.ErrorContains(t, err, tc.err)
			require.Nil(t, c)
		})
	}
}

func TestSetNodeDefaults(t *testing.T) {
	t.Parallel()
	c := v1alpha1.NewNodeConfig()
	c.NodeName = "node1"
	v1alpha1.SetNodeDefaults(c)
	require.Empty(t, c.Validate(nil), "the defaults are valid")
	require.Equal(t, "/var/lib/kubelet", c.KubeletRoot)
	require.Equal(t, "/", c.DriverRootMount)
	require.Equal(t, v1alpha1.CardsAuto, c.CardSource)
	require.Equal(t, share.GuaranteedBurst, c.DefaultPolicy)
	require.Equal(t, 16, *c.SlotsPerCard)
	require.Equal(t, 10*time.Second, c.ReconcileInterval.Duration)
	require.Equal(t, 5*time.Second, c.ArbiterTimeout.Duration)
	require.Equal(t, "/run/tranche", c.RunDir)
	require.Equal(t, "/var/lib/tranche/runtime", c.RuntimeDir)
	require.Zero(t, c.MemoryReserveMiB())

	set, err := v1alpha1.DecodeNodeConfig([]byte(nodeHead + `
nodeName: node1
kubeletRoot: /k
cdiRoot: /c
stateDir: /s
runDir: /r
runtimeSource: /u
driverRoot: /run/nvidia/driver
cardSource: sim
simFleet: /f
defaultPolicy: best-effort
slotsPerCard: 3
memoryReserve: 1Gi
metricsAddress: ""
healthAddress: 127.0.0.1:1
reconcileInterval: 3s
staleGrace: 4s
arbiterTimeout: 1s
forceOldKubernetes: true
`))
	require.NoError(t, err)
	want := set.DeepCopy()
	want.DriverRootMount = "/run/nvidia/driver"
	want.RuntimeDir = "/s/runtime"
	v1alpha1.SetNodeDefaults(set)
	require.Equal(t, want, set, "what is set stays, an empty address included")
	require.Empty(t, set.Validate(nil))
	require.EqualValues(t, 1024, set.MemoryReserveMiB())
}

func TestValidateNodeConfig(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ fields, err string }{
		"the defaults":                    {"", ""},
		"simulated cards":                 {"cardSource: sim\nsimFleet: /etc/fleet.yaml", ""},
		"a fleet file settles auto":       {"simFleet: /etc/fleet.yaml", ""},
		"servers switched off":            {`{metricsAddress: "", healthAddress: ""}`, ""},
		"a kubelet root of 54 bytes":      {"kubeletRoot: /" + strings.Repeat("k", 53), ""},
		"no node name":                    {`nodeName: ""`, "nodeName: Required value"},
		"a node name in upper case":       {"nodeName: Node1", "nodeName: Invalid value"},
		"a relative path":                 {"stateDir: state", `stateDir: Invalid value: "state": must be an absolute path`},
		"a relative driver mount":         {"driverRootMount: host", "driverRootMount: Invalid value"},
		"a relative fleet file":           {"simFleet: fleet.yaml", "simFleet: Invalid value"},
		"a kubelet root too deep":         {"kubeletRoot: /" + strings.Repeat("k", 54), "kubeletRoot: Too long: may not be more than 54 bytes"},
		"an unknown source":               {"cardSource: amd", `cardSource: Unsupported value: "amd": supported values: "auto", "nvml", "sim"`},
		"simulated cards without a fleet": {"cardSource: sim", "simFleet: Required value: cardSource sim reads its cards from this file"},
		"a fleet that nobody reads":       {"cardSource: nvml\nsimFleet: /f", "simFleet: Forbidden: cardSource nvml reads no fleet file"},
		"an unknown policy":               {"defaultPolicy: fair", `defaultPolicy: Unsupported value: "fair"`},
		"no slot":                         {"slotsPerCard: 0", "slotsPerCard: Invalid value: 0: must be 1 to 128"},
		"too many slots":                  {"slotsPerCard: 129", "slotsPerCard: Invalid value: 129"},
		"a negative reserve":              {"memoryReserve: -1Mi", `memoryReserve: Invalid value: "-1Mi"`},
		"a reserve off the step":          {"memoryReserve: 1500Ki", "in steps of 1Mi"},
		"a reserve in parts of bytes":     {"memoryReserve: 1500m", "in steps of 1Mi"},
		"an address without port":         {"metricsAddress: localhost", `metricsAddress: Invalid value: "localhost": must be host:port or :port`},
		"a port that is no number":        {"healthAddress: :http", "healthAddress: Invalid value"},
		"a port out of range":             {"healthAddress: :65536", "0 to 65535"},
		"both servers on one address":     {`{metricsAddress: ":1", healthAddress: ":1"}`, `healthAddress: Duplicate value: ":1"`},
		"a reconcile interval that spins": {"reconcileInterval: 1ms", "reconcileInterval: Invalid value: \"1ms\": must be at least 1s"},
		"a relative directory to run in":  {"runDir: run", "runDir: Invalid value"},
		"a relative runtime":              {"runtimeDir: runtime", "runtimeDir: Invalid value"},
		"a relative source":               {"runtimeSource: lib", "runtimeSource: Invalid value"},
		"no time for the arbiter":         {"arbiterTimeout: 0s", "arbiterTimeout: Invalid value: \"0s\": must be more than 0s"},
		"more time than kubelet has":      {"arbiterTimeout: 31s", "at most 30s"},
		"no grace at all":                 {"staleGrace: 0s", "staleGrace: Invalid value: \"0s\": must be more than 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := v1alpha1.NewNodeConfig()
			c.NodeName = "node1"
			require.NoError(t, yaml.UnmarshalStrict([]byte(tc.fields), c))
			v1alpha1.SetNodeDefaults(c)
			requireErrors(t, c.Validate(nil), tc.err)
		})
	}
}

func FuzzDecodeNodeConfig(f *testing.F) {
	for _, seed := range []string{
		nodeHead,
		nodeHead + "nodeName: node1\nslotsPerCard: 4\nmemoryReserve: 1.5Gi\nstaleGrace: 1h\nmetricsAddress: \"\"\n",
		nodeHead + "---\n", "---", "{}", "null", "a: &a [*a]", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := v1alpha1.DecodeNodeConfig(raw)
		if err != nil {
			require.Nil(t, c)
			return
		}
		encoded, err := yaml.Marshal(c)
		require.NoError(t, err)
		again, err := v1alpha1.DecodeNodeConfig(encoded)
		require.NoError(t, err)
		require.True(t, equality.Semantic.DeepEqual(c, again), "%#v\n%#v", c, again)
		v1alpha1.SetNodeDefaults(c)
		_ = c.Validate(nil)
		require.GreaterOrEqual(t, int64(c.MemoryReserveMiB()), int64(0))
	})
}
