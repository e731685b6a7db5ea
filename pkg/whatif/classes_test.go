// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// class selects what the expression does.
func class(name, expression, config string) string {
	return `
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: ` + name + `}
spec:
  selectors: [{cel: {expression: '` + expression + `'}}]
  config: [` + config + `]
`
}

// claimOf that class.
func claimOf(class string) string {
	return `
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {namespace: team, name: mine}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: ` + class + `, capacity: {requests: {cores: "0", offlineCores: "20", memory: 1Gi}}}}]}}
`
}

func TestClassesOfTheFilesAreUsed(t *testing.T) {
	t.Parallel()
	const (
		ours = `device.driver == "gpu.tranche.dev"`
		a30  = `device.attributes["gpu.tranche.dev"].productName == "NVIDIA A30"`
		t4   = `device.attributes["gpu.tranche.dev"].productName == "NVIDIA T4"`
		none = `device.attributes["gpu.tranche.dev"].productName == "NVIDIA H200"`
		nic  = `device.driver == "nic.example.com"`
	)
	for name, tc := range map[string]struct {
		cluster, comes string
		// on is the node, or missing part of why there is none, or refused why it is not tried.
		on, missing, refused string
	}{
		"in the export":                        {class("a.tranche.dev", t4, ""), claimOf("a.tranche.dev"), "node-b", "", ""},
		"beside the claim":                     {"", class("a.tranche.dev", t4, "") + claimOf("a.tranche.dev"), "node-b", "", ""},
		"the export's rather than the claim's": {class("a.tranche.dev", t4, ""), class("a.tranche.dev", a30, "") + claimOf("a.tranche.dev"), "node-b", "", ""},
		"the export's rather than Tranche's":   {class("share.tranche.dev", t4, ""), claimOf("share.tranche.dev"), "node-b", "", ""},
		"Tranche's beside the export's":        {class("a.tranche.dev", t4, ""), claimOf("offline.tranche.dev"), "node-b", "", ""},
		"of another name that selects cards":   {class("t4.example.com", t4, ""), claimOf("t4.example.com"), "node-b", "", ""},
		"that no card is of":                   {class("a.tranche.dev", none, ""), claimOf("a.tranche.dev"), "", "3 are of another kind", ""},
		"with a configuration that cannot be":  {class("a.tranche.dev", ours, `{opaque: {driver: gpu.tranche.dev, parameters: {kind: Else}}}`), claimOf("a.tranche.dev"), "", "", "read configuration"},
		"of another driver":                    {class("nic.example.com", nic, ""), claimOf("nic.example.com"), "", "", `device class "nic.example.com" selects no card of gpu.tranche.dev in this cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, err := try(t, tc.cluster, tc.comes)
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			require.Contains(t, claim.Missing, tc.missing)
			if tc.on != "" {
				require.Equal(t, 1, claim.Placed, claim.Missing)
				require.Equal(t, tc.on, claim.On[0].Node)
			}
		})
	}
}
