// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/whatif"
)

// waiting tries what waits in testdata/cluster.yaml with more added.
func waiting(t *testing.T, more string) *whatif.Report {
	t.Helper()
	file, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	cluster, err := whatif.Read(strings.NewReader(string(file)+more), "cluster")
	require.NoError(t, err)
	report, err := whatif.Compare(t.Context(), &cluster, nil, 1, policies(t)[:1])
	require.NoError(t, err)
	return report
}

func names(claims []whatif.Claim) []string {
	var all []string
	for i := range claims {
		all = append(all, claims[i].Name)
	}
	return all
}

// waits is a claim for a whole device of that class, as exported.
func waits(name, class string) string {
	return "\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: team, name: " + name +
		"}, spec: {devices: {requests: [{name: it, exactly: {deviceClassName: " + class + "}}]}}}\n"
}

// uses is a pod that waits with those claims.
func uses(name, more string, claims ...string) string {
	var refs []string
	for _, claim := range claims {
		refs = append(refs, "{name: "+claim+", resourceClaimName: "+claim+"}")
	}
	return "\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: team, name: " + name + "}, spec: {" + more + "resourceClaims: [" + strings.Join(refs, ", ") + "]}}\n"
}

func TestWhatWaitsAndCannotBeSimulatedIsLeftOut(t *testing.T) {
	t.Parallel()
	const (
		unknown  = `request it: device class "nic.example.com" does not come with Tranche, and no file has it: kubectl get deviceclasses -o json exports it`
		affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}, "
	)
	for name, tc := range map[string]struct {
		more  string
		tried []string
		out   []whatif.LeftOut
	}{
		"a claim of another driver": {
			waits("nic", "nic.example.com"),
			[]string{"team/waits"},
			[]whatif.LeftOut{{Why: unknown, Count: 1, Names: []string{"claim team/nic"}}},
		},
		"a pod that needs something of another driver, too": {
			waits("nic", "nic.example.com") + waits("card", "card.tranche.dev") + uses("pod", "", "card", "nic"),
			[]string{"team/waits"},
			[]whatif.LeftOut{{Why: unknown, Count: 1, Names: []string{"pod team/pod"}}},
		},
		"a pod, and with it its claims": {
			uses("pod", affinity, "waits") + waits("card", "card.tranche.dev"),
			[]string{"team/card"},
			[]whatif.LeftOut{{Why: "node affinity is not simulated: give a nodeSelector", Count: 1, Names: []string{"pod team/pod"}}},
		},
		"a pod whose claim is not made yet": {
			uses("pod", "", "waits", "else") + waits("card", "card.tranche.dev"),
			[]string{"team/card"},
			[]whatif.LeftOut{{Why: "claim else is not in the file", Count: 1, Names: []string{"pod team/pod"}}},
		},
		"a pod for some nodes of a cluster that shows none": {
			uses("pod", "nodeSelector: {team: red}, ", "waits") + waits("card", "card.tranche.dev"),
			[]string{"team/card"},
			[]whatif.LeftOut{{
				Why:   "it has a nodeSelector: the export shows no nodes: kubectl get nodes,resourceslices,resourceclaims,deviceclasses -A -o json does",
				Count: 1, Names: []string{"pod team/pod"},
			}},
		},
		"a pod that has one claim allocated": {
			held + waits("card", "card.tranche.dev") + uses("pod", "", "held", "card"),
			[]string{"team/waits"},
			[]whatif.LeftOut{{Why: "it holds some of its cards already: where they are is not simulated", Count: 1, Names: []string{"pod team/pod"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := waiting(t, tc.more)
			require.Equal(t, len(tc.tried), report.Asked)
			require.Equal(t, tc.tried, names(report.Policies[0].Claims))
			require.Equal(t, tc.out, report.LeftOut)
		})
	}
}

func TestWhatIsLeftOutIsListedInFewLines(t *testing.T) {
	t.Parallel()
	var more strings.Builder
	for i := range 40 {
		more.WriteString(waits(fmt.Sprint("nic-", i), "nic.example.com"))
	}
	for i := range 30 {
		more.WriteString(waits(fmt.Sprint("other-", i), fmt.Sprintf("c%d.example.com", i)))
	}
	report := waiting(t, more.String())
	var table, text bytes.Buffer
	require.NoError(t, report.WriteTables(&table))
	var lines []string
	for line := range strings.Lines(table.String()) {
		if strings.HasPrefix(line, "left out: ") {
			lines = append(lines, line)
		}
	}
	require.Len(t, lines, 10)
	require.Contains(t, lines[0], "left out: claim team/nic-0, claim team/nic-1, claim team/nic-2, claim team/nic-3, claim team/nic-4 and 35 more: request it: device class")
	require.Contains(t, lines[1], `left out: claim team/other-0: request it: device class "c0.example.com"`)
	require.Equal(t, "left out: claim team/other-8, claim team/other-9, claim team/other-10, claim team/other-11, claim team/other-12 and 17 more: other reasons\n", lines[9])

	require.NoError(t, report.WriteJSON(&text))
	var read whatif.Report
	require.NoError(t, json.Unmarshal(text.Bytes(), &read))
	require.Equal(t, report.LeftOut, read.LeftOut)
	sum := 0
	for i := range read.LeftOut {
		sum += read.LeftOut[i].Count
	}
	require.Equal(t, 70, sum)
}

func TestThatAllOfWhatWaitsIsLeftOutIsSaid(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	cluster, err := whatif.Read(strings.NewReader(strings.ReplaceAll(string(file), "share.tranche.dev", "nic.example.com")), "cluster")
	require.NoError(t, err)
	_, err = whatif.Compare(t.Context(), &cluster, nil, 1, policies(t))
	require.ErrorIs(t, err, whatif.ErrNoClaims)
	require.ErrorContains(t, err, "left out: claim team/waits: request gpu: device class")
}
