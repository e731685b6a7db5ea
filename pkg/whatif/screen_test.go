// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/whatif"
)

// hosts of the cards of testdata/cluster.yaml, of which two are labelled.
const hosts = `
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-a, labels: {team: red}}}
- {apiVersion: v1, kind: Node, metadata: {name: node-b, labels: {team: red}}}
- {apiVersion: v1, kind: Node, metadata: {name: node-c}}
`

// try what comes on the cluster, to whose export more is added.
func try(t *testing.T, more, comes string) (whatif.Claim, error) {
	t.Helper()
	file, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	cluster, err := whatif.Read(strings.NewReader(string(file)+more), "cluster")
	require.NoError(t, err)
	objects, err := whatif.Read(strings.NewReader(comes), "comes")
	require.NoError(t, err)
	report, err := whatif.Compare(t.Context(), &cluster, &objects, 1, policies(t)[:1])
	if err != nil {
		return whatif.Claim{}, err
	}
	require.Len(t, report.Policies[0].Claims, 1)
	return report.Policies[0].Claims[0], nil
}

// card is a template for a card of that model, with the request's tolerations.
func card(model, tolerations string) string {
	return `
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {namespace: team, name: card}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: share.tranche.dev
          capacity: {requests: {cores: "30", memory: 2Gi}}
          selectors: [{cel: {expression: 'device.attributes["gpu.tranche.dev"].productName == "` + model + `"'}}]
          tolerations: [` + tolerations + `]
`
}

// pod uses that template.
func pod(spec string) string {
	return `
---
apiVersion: v1
kind: Pod
metadata: {namespace: team, name: pod}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: card}]
  ` + spec + "\n"
}

// rule taints the cards that match.
func rule(selector, effect string) string {
	return `
---
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: rule}
spec: {deviceSelector: ` + selector + `, taint: {key: admin, value: service, effect: ` + effect + `}}
`
}

func host(name, spec string) string {
	return "\n---\n{apiVersion: v1, kind: Node, metadata: {name: " + name + "}, spec: " + spec + "}\n"
}

func TestTaintsAndWishesCount(t *testing.T) {
	t.Parallel()
	const a30, t4 = "NVIDIA A30", "NVIDIA T4"
	const onA, onB0, onB1 = "node-a 0", "node-b 0", "node-b 1"
	tolerant := `{key: gpu.tranche.dev/XidError, operator: Exists}`
	for name, tc := range map[string]struct {
		more, comes string
		// on is the card that is taken, or missing part of why none is.
		on, missing string
	}{
		"a tainted card is left alone": {"", card(t4, ""), onB0, ""},
		"a rule taints like a driver": {
			rule("{driver: gpu.tranche.dev, pool: node-b, device: gpu-0}", "NoSchedule"), card(t4, ""), "", "2 are tainted",
		},
		"a request tolerates its taint and no other": {
			rule("{pool: node-b}", "NoExecute"), card(t4, tolerant), "", "2 are tainted",
		},
		"a request tolerates the taint of a card": {
			rule("{device: gpu-0}", "NoSchedule"), card(t4, tolerant), onB1, "",
		},
		"a request tolerates a value": {
			rule("{device: gpu-0}", "NoSchedule"), card(a30, "{key: admin, value: service}"), onA, "",
		},
		"a rule for another driver's cards": {rule("{driver: net.example.com}", "NoSchedule"), card(t4, ""), onB0, ""},
		"a rule without a selector":         {rule("null", "NoSchedule"), card(t4, ""), onB0, ""},
		"an effect that only tells":         {rule("{}", "None"), card(t4, ""), onB0, ""},
		"a node's taint": {
			host("node-a", "{}") + host("node-b", "{taints: [{key: k, value: v, effect: NoSchedule}]}") + host("node-c", "{}"),
			card(t4, ""), "", "; 1 node has a taint",
		},
		"a pod tolerates its node's taint": {
			host("node-b", "{taints: [{key: k, value: v, effect: NoExecute}]}"), card(t4, "") + pod("tolerations: [{key: k, value: v}]"), onB0, "",
		},
		"a node's taint that is a preference": {
			host("node-b", "{taints: [{key: k, effect: PreferNoSchedule}]}"), card(t4, ""), onB0, "",
		},
		"a node that is cordoned": {host("node-b", "{unschedulable: true}"), card(t4, ""), "", "no node is left; 1 node has a taint; 2 nodes are gone"},
		"a pod for cordoned nodes": {
			host("node-b", "{unschedulable: true}"), card(t4, "") + pod("tolerations: [{operator: Exists}]"), onB0, "",
		},
		"a nodeSelector that matches":     {hosts, card(t4, "") + pod("nodeSelector: {team: red}"), onB0, ""},
		"a nodeSelector that does not":    {hosts, card(t4, "") + pod("nodeSelector: {team: blue}"), "", "no node is left; 3 nodes are not selected"},
		"a nodeSelector that some match":  {hosts, card("AMD MI210", "") + pod("nodeSelector: {team: red}"), "", "; 1 node is not selected"},
		"a claim of its own has no wish":  {hosts, card(t4, ""), onB0, ""},
		"a node that the export lacks":    {host("node-a", "{}"), card(t4, ""), "", "; 2 nodes are gone"},
		"a pod that was placed is passed": {hosts, card(t4, "") + pod("nodeName: node-c"), onB0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, err := try(t, tc.more, tc.comes)
			require.NoError(t, err)
			if tc.on == "" {
				require.Zero(t, claim.Placed)
				require.Contains(t, claim.Missing, tc.missing)
				return
			}
			require.Equal(t, 1, claim.Placed, claim.Missing)
			require.Equal(t, tc.on, claim.On[0].Node+" "+claim.On[0].Card)
		})
	}
}

func TestAPodAsksForAllOfItsClaims(t *testing.T) {
	t.Parallel()
	const two = `
apiVersion: v1
kind: Pod
metadata: {namespace: team, name: pod}
spec:
  resourceClaims: [{name: one, resourceClaimTemplateName: card}, {name: two, resourceClaimName: mine}]
status:
  resourceClaimStatuses: [{name: one, resourceClaimName: made}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {namespace: team, name: mine}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.tranche.dev, capacity: {requests: {cores: "40", memory: 1Gi}}}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {namespace: team, name: made}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.tranche.dev, capacity: {requests: {cores: "80", memory: 1Gi}}}}]}}
`
	claim, err := try(t, "", two)
	require.NoError(t, err)
	require.Equal(t, "team/pod", claim.Name)
	require.Equal(t, []whatif.Place{{Node: "node-a", Card: "0"}, {Node: "node-a", Card: "1"}}, sorted(claim.On), "node-b has one card that is not tainted")
}

func sorted(on []whatif.Place) []whatif.Place {
	if len(on) == 2 && on[0].Card > on[1].Card {
		on[0], on[1] = on[1], on[0]
	}
	return on
}

// A scheduler that is about to bind the pod has allocated its claims.
const (
	held   = "\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: team, name: held}, spec: {}, status: {allocation: {}}}\n"
	holder = "\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: team, name: pod}, spec: {resourceClaims: [{name: held, resourceClaimName: held}]}}\n"
)

func TestPodsThatHoldTheirCardsAreNotAskedForAgain(t *testing.T) {
	t.Parallel()
	claim, err := try(t, "", held+holder+card("NVIDIA T4", ""))
	require.NoError(t, err)
	require.Equal(t, "team/card", claim.Name)
}

func TestPodsThatCannotBeSimulatedAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ more, comes, want string }{
		"a nodeSelector and no nodes": {"", card("", "") + pod("nodeSelector: {team: red}"), "pod team/pod: it has a nodeSelector: the export shows no nodes"},
		"node affinity": {
			hosts, card("", "") + pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}"),
			"pod team/pod: node affinity is not simulated: give a nodeSelector",
		},
		"a template that is elsewhere": {"", pod(""), "pod team/pod: template card is not in the file"},
		"a claim that is elsewhere":    {"", pod("") + "status: {resourceClaimStatuses: [{name: gpu, resourceClaimName: made}]}", "pod team/pod: claim made is not in the file"},
		"a claim that is held beside another": {
			"", held + card("", "") + strings.Replace(pod(""), "[{", "[{name: held, resourceClaimName: held}, {", 1),
			"pod team/pod: it holds some of its cards already",
		},
		"requests that tolerate different things": {
			"", "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: two}, spec: {devices: {requests: [" +
				"{name: a, exactly: {deviceClassName: card.tranche.dev}}, {name: b, exactly: {deviceClassName: card.tranche.dev, tolerations: [{operator: Exists}]}}]}}}",
			"claim two: requests with different tolerations are not simulated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := try(t, tc.more, tc.comes)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
