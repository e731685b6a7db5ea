// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/whatif"
)

// limits is a pod with those of a container.
func limits(of, more string) string {
	return "\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: team, name: plain}, spec: {containers: [{name: main, resources: {limits: {" + of + "}}}]" + more + "}\n"
}

func TestLimitsAreClaims(t *testing.T) {
	t.Parallel()
	const t4 = `
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: t4.example.com}
spec:
  extendedResourceName: example.com/t4
  selectors: [{cel: {expression: 'device.attributes["gpu.tranche.dev"].productName == "NVIDIA T4"'}}]
`
	const two = `
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-d-abc}
spec:
  driver: gpu.tranche.dev
  nodeName: node-d
  pool: {name: node-d, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {index: {int: 0}}}, {name: gpu-1, attributes: {index: {int: 1}}}]
`
	for name, tc := range map[string]struct {
		cluster, comes string
		// on is where a card is taken, or missing why none is, or refused why none is tried.
		on               []whatif.Place
		missing, refused string
	}{
		"a card":               {"", limits("tranche.dev/gpu: 1, cpu: 2", "}"), []whatif.Place{{Node: "node-b", Card: "0"}}, "", ""},
		"more than a node has": {"", limits("tranche.dev/gpu: 2", "}"), nil, "no node has 2 unused cards", ""},
		"two containers": {
			two, strings.Replace(limits("tranche.dev/gpu: 1", "}"), "[{", "[{name: also, resources: {limits: {tranche.dev/gpu: 1}}}, {", 1),
			[]whatif.Place{{Node: "node-d", Card: "0"}, {Node: "node-d", Card: "1"}},
			"", "",
		},
		"the name that every class has": {"", limits("deviceclass.resource.kubernetes.io/card.tranche.dev: 1", "}"), []whatif.Place{{Node: "node-b", Card: "0"}}, "", ""},
		"a class of one's own":          {t4, limits("example.com/t4: 1", "}"), []whatif.Place{{Node: "node-b", Card: "0"}}, "", ""},
		"a nodeSelector beside it":      {hosts, limits("tranche.dev/gpu: 1", ", nodeSelector: {team: red}}"), []whatif.Place{{Node: "node-b", Card: "0"}}, "", ""},
		"what stands for nothing":       {"", limits("tranche.dev/gpus: 1", "}"), nil, "", "pod team/plain: limit of tranche.dev/gpus: no device class has it as its extended resource"},
		"an init container":             {"", limits("cpu: 1", ", initContainers: [{name: first, resources: {limits: {tranche.dev/gpu: 1}}}]}"), nil, "", "limit of tranche.dev/gpu: those of init containers are not simulated"},
		"too many":                      {"", limits("tranche.dev/gpu: 33", "}"), nil, "", "pod team/plain: request tranche.dev/gpu: count of 33"},
		"nothing of it":                 {"", limits("tranche.dev/gpu: 0", "}"), nil, "", "nothing is asked for"},
		"another resource":              {"", limits("nvidia.com/gpu: 1", "}"), nil, "", "nothing is asked for"},
		"another resource and affinity": {"", limits("cpu: 1", ", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}"), nil, "", "nothing is asked for"},
		"what is allocated already":     {"", held + limits("tranche.dev/gpu: 1", "}, status: {extendedResourceClaimStatus: {resourceClaimName: held}}"), nil, "", "nothing is asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, err := try(t, tc.cluster, tc.comes)
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "team/plain", claim.Name)
			require.Contains(t, claim.Missing, tc.missing)
			require.ElementsMatch(t, tc.on, claim.On)
		})
	}
}
