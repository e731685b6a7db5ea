// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/tests/golden"
)

func TestReports(t *testing.T) {
	t.Parallel()
	sick := []doctor.Finding{
		{Check: "container runtime", Level: doctor.Problem, Seen: "CDI is off in containerd 1.7.24 at /run/containerd/containerd.sock", Remedy: "set enable_cdi = true and restart it"},
		{Check: "cards", Level: doctor.OK, Seen: "card GPU-1 (index 0, A30) can be shared, with 24576Mi"},
		{Check: "cards", Level: doctor.Problem, Seen: "find driver files:\n\tlibcuda.so is missing", Remedy: "install <it>"},
		{Check: "records", Level: doctor.Warning, Seen: "the record of claim u cannot be used", Remedy: "delete the claim's pods"},
		{Check: "device classes", Level: doctor.Skipped, Seen: "not allowed to look at DeviceClasses as this user"},
	}
	for name, findings := range map[string][]doctor.Finding{"sick": sick, "healthy": sick[1:2]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := doctor.Report{Node: "node-1", Version: "v0.1.0", Findings: findings}
			var table, json bytes.Buffer
			require.NoError(t, report.WriteTable(&table))
			golden.Equal(t, name+".txt", table.Bytes())
			require.NoError(t, report.WriteJSON(&json))
			golden.Equal(t, name+".json", json.Bytes())
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errBroken }

func TestAReportThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	report := doctor.Report{Findings: []doctor.Finding{{Check: "a"}}}
	require.ErrorIs(t, report.WriteTable(full{}), errBroken)
	require.ErrorIs(t, report.WriteJSON(full{}), errBroken)
}

// waits for another check to begin.
type waits struct{ begin, other chan struct{} }

func (w waits) Examine(context.Context) []doctor.Finding {
	close(w.begin)
	<-w.other
	return []doctor.Finding{{Level: doctor.OK, Seen: "1"}, {Level: doctor.Warning, Seen: "2"}}
}

func TestChecksRunAtOnceAndAreListedInOrder(t *testing.T) {
	t.Parallel()
	a, b := make(chan struct{}), make(chan struct{})
	found := doctor.Examine(t.Context(), []doctor.Check{
		{Name: "first", Examiner: waits{a, b}},
		{Name: "second", Examiner: waits{b, a}},
		{Name: "third", Examiner: doctor.Known{{Level: doctor.Skipped, Seen: "3"}}},
	})
	require.Equal(t, []doctor.Finding{
		{Check: "first", Level: doctor.OK, Seen: "1"},
		{Check: "first", Level: doctor.Warning, Seen: "2"},
		{Check: "second", Level: doctor.OK, Seen: "1"},
		{Check: "second", Level: doctor.Warning, Seen: "2"},
		{Check: "third", Level: doctor.Skipped, Seen: "3"},
	}, found)
}

// hangs never answers and heeds nobody, as a graphics driver may.
type hangs struct{}

func (hangs) Examine(context.Context) []doctor.Finding { select {} }

func TestACheckThatHangsIsAFinding(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found := doctor.Examine(ctx, []doctor.Check{{"cards", hangs{}}, {"other", doctor.Known{{Level: doctor.OK, Seen: "well"}}}})
	require.Len(t, found, 2)
	require.Equal(t, doctor.Problem, found[0].Level)
	require.Equal(t, "cards", found[0].Check)
	require.Contains(t, found[0].Seen, "no answer")
	require.Equal(t, doctor.Finding{Check: "other", Level: doctor.OK, Seen: "well"}, found[1])
}
