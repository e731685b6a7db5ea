// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/golden"
)

func rows() []Row {
	return []Row{
		{
			Metric: "prepare p99, 16 claims at once", Value: 7.123456, Unit: "ms", Target: AtMost(20),
			Reference: "none published", Source: "target of this project",
		},
		{Metric: "resident memory", Value: 41.5, Unit: "MiB", Target: AtMost(40), Source: "target of this project"},
		{Metric: "claims decoded", Value: 123456.789, Unit: "claims/s"},
		{Metric: "throughput kept", Value: 98.25, Unit: "%", Target: AtLeast(97), Reference: "a\tb\nc", Source: "a paper", Remark: "the machine\nstood still"},
		{Metric: "time to wake", Unit: "ms", Target: AtMost(5), Source: "a paper", Missing: "nobody woke"},
		{Subject: "a share that sleeps by turns, beside others that do not", Metric: "time to wake", Value: 4, Unit: "ms"},
		{Subject: "a share that sleeps by turns, beside others that do not", Metric: "part of the card", Value: 20, Unit: "%"},
		{Metric: "time to sleep", Missing: "nobody woke", Remark: "the machine stood still"},
	}
}

func TestReportPrintsATableAndSavesTheSameRows(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	var out bytes.Buffer
	require.NoError(t, Report(&out, "node-driver", dir, rows()))
	golden.Equal(t, "table.txt", out.Bytes())
	saved, err := os.ReadFile(filepath.Join(dir, "node-driver.json"))
	require.NoError(t, err)
	golden.Equal(t, "rows.json", saved)
}

func TestReportReplacesAnOlderReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, Report(&out, "node", dir, rows()))
	require.NoError(t, Report(&out, "node", dir, rows()[:1]))
	saved, err := os.ReadFile(filepath.Join(dir, "node.json"))
	require.NoError(t, err)
	require.Contains(t, string(saved), "prepare p99")
	require.NotContains(t, string(saved), "resident memory")
}

func TestReportRefuses(t *testing.T) {
	t.Parallel()
	good := Row{Metric: "a", Value: 1, Unit: "ms"}
	with := func(change func(*Row)) []Row {
		bad := good
		change(&bad)
		return []Row{bad}
	}
	for name, row := range map[string]struct {
		name string
		rows []Row
		want error
		text string
	}{
		"a name that leaves the directory":     {"../x", []Row{good}, ErrName, `"../x"`},
		"an empty name":                        {"", []Row{good}, ErrName, `""`},
		"a report without rows":                {"x", nil, ErrRow, "nothing was measured"},
		"a row without a metric":               {"x", with(func(r *Row) { r.Metric = "" }), ErrRow, "row 1"},
		"a row without a unit":                 {"x", with(func(r *Row) { r.Unit = "" }), ErrRow, "no unit"},
		"a metric that is there twice":         {"x", []Row{good, good}, ErrRow, "row 2"},
		"a value that is not a number":         {"x", with(func(r *Row) { r.Value = math.NaN() }), ErrRow, "NaN"},
		"an infinite value":                    {"x", with(func(r *Row) { r.Value = math.Inf(1) }), ErrRow, "+Inf"},
		"a target that comes from nowhere":     {"x", with(func(r *Row) { r.Target = AtMost(1) }), ErrRow, "comes from"},
		"a reference that comes from nowhere":  {"x", with(func(r *Row) { r.Reference = "better" }), ErrRow, "comes from"},
		"a later row where the first is right": {"x", append([]Row{good}, with(func(r *Row) { r.Metric = "" })...), ErrRow, "row 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var out bytes.Buffer
			err := Report(&out, row.name, dir, row.rows)
			require.ErrorIs(t, err, row.want)
			require.ErrorContains(t, err, row.text)
			require.Empty(t, out.String())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
}

type brokenPipe struct{}

var errBroken = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestReportTellsWhatItCouldNotWrite(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, Report(brokenPipe{}, "node", t.TempDir(), rows()), errBroken)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, Report(&bytes.Buffer{}, "node", file, rows()), "save benchmark node: ")
}

func TestMissedAreRowsBelowTheirTargetAndThoseThatWereNotMeasured(t *testing.T) {
	t.Parallel()
	var missed []string
	for _, r := range Missed(rows()) {
		missed = append(missed, r.Metric)
	}
	require.Equal(t, []string{"resident memory", "time to wake", "time to sleep"}, missed)
}
