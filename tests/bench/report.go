// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Row is one figure.
type Row struct {
	// Subject is what several rows in a line are about, and is printed above them; empty
	// for nothing.
	Subject string
	// Metric says in words what was measured, "prepare p99, 16 claims at once".
	Metric string
	// Value in Unit.
	Value float64
	// Unit such as "ms", "MiB" or "claims/s".
	Unit string
	// Target in the same unit.
	Target Target
	// Reference is the best known of other systems, in words; empty where
	// nothing is known.
	Reference string
	// Source is where the target or the reference comes from.
	Source string
	// Remark is what else is to be said of the figure, empty for nothing.
	Remark string
	// Missing says why the figure could not be measured, empty where it was. Value
	// does not count then, and the target is missed.
	Missing string
}

// fields is a row as programs read it.
type fields struct {
	Subject string `json:"subject,omitempty"`
	Metric  string `json:"metric"`
	// Value is null where it could not be measured.
	Value     *float64 `json:"value"`
	Unit      string   `json:"unit"`
	Target    string   `json:"target"`
	Reference string   `json:"reference"`
	Source    string   `json:"source"`
	Remark    string   `json:"remark,omitempty"`
	Missing   string   `json:"missing,omitempty"`
	// Holds is null for a figure that was measured and has no target.
	Holds *bool `json:"holds"`
}

// MarshalJSON implements json.Marshaler.
func (r Row) MarshalJSON() ([]byte, error) {
	out := fields{
		Subject: r.Subject, Metric: r.Metric, Unit: r.Unit,
		Target: r.Target.String(), Reference: r.Reference, Source: r.Source, Remark: r.Remark, Missing: r.Missing,
	}
	if r.Missing == "" {
		out.Value = &r.Value
	}
	if r.Target.Set() || r.missed() {
		met := !r.missed()
		out.Holds = &met
	}
	return json.Marshal(out)
}

// missed: the target is not reached, or nobody knows.
func (r Row) missed() bool {
	return r.Missing != "" || r.Target.Set() && !r.Target.Met(r.Value)
}

var plainName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Report prints the rows as a table to w and writes them to <dir>/<name>.json,
// making dir where it is missing. The error is ErrName or ErrRow where the
// caller is wrong, and otherwise that of the writer or the file system.
func Report(w io.Writer, name, dir string, rows []Row) error {
	if !plainName.MatchString(name) {
		return fmt.Errorf("report benchmark %q: %w", name, ErrName)
	}
	if err := check(rows); err != nil {
		return fmt.Errorf("report benchmark %s: %w", name, err)
	}
	if err := table(w, name, rows); err != nil {
		return fmt.Errorf("print benchmark %s: %w", name, err)
	}
	if err := save(filepath.Join(dir, name+".json"), rows); err != nil {
		return fmt.Errorf("save benchmark %s: %w", name, err)
	}
	return nil
}

// Missed returns the rows whose target is not reached or that were not measured.
func Missed(rows []Row) []Row {
	var missed []Row
	for _, r := range rows {
		if r.missed() {
			missed = append(missed, r)
		}
	}
	return missed
}

func check(rows []Row) error {
	if len(rows) == 0 {
		return fmt.Errorf("%w: nothing was measured", ErrRow)
	}
	seen := make(map[[2]string]bool, len(rows))
	for i, r := range rows {
		switch {
		case r.Metric == "":
			return fmt.Errorf("%w %d: it has no metric", ErrRow, i+1)
		case seen[[2]string{r.Subject, r.Metric}]:
			return fmt.Errorf("%w %d: %q is there twice", ErrRow, i+1, r.Metric)
		case r.Unit == "" && r.Missing == "":
			return fmt.Errorf("%w %d: %q has no unit", ErrRow, i+1, r.Metric)
		case math.IsNaN(r.Value) || math.IsInf(r.Value, 0):
			return fmt.Errorf("%w %d: %q is %v, which is no figure", ErrRow, i+1, r.Metric, r.Value)
		case (r.Target.Set() || r.Reference != "") && r.Source == "":
			return fmt.Errorf("%w %d: %q does not say where its target or reference comes from", ErrRow, i+1, r.Metric)
		}
		seen[[2]string{r.Subject, r.Metric}] = true
	}
	return nil
}

// notes are texts too long for a table, each once.
type notes []string

// refer adds a text and returns its number; empty for an empty text.
func (n *notes) refer(text string) string {
	if text = plain(text); text == "" {
		return ""
	}
	i := slices.Index(*n, text)
	if i < 0 {
		i = len(*n)
		*n = append(*n, text)
	}
	return strconv.Itoa(i + 1)
}

// plain: a tab or a line break would make another cell or row.
func plain(s string) string { return strings.Join(strings.Fields(s), " ") }

func table(w io.Writer, name string, rows []Row) error {
	var aligned, text strings.Builder
	var below notes
	out := tabwriter.NewWriter(&aligned, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "FIGURE\tMEASURED\tTARGET\tHOLDS\tREFERENCE\tNOTES")
	for _, r := range rows {
		metric := plain(r.Metric)
		if r.Subject != "" {
			metric = "  " + metric
		}
		value, target, holds := number(r.Value)+" "+r.Unit, "", ""
		if r.Missing != "" {
			value = "not measured"
		}
		if r.Target.Set() {
			target, holds = r.Target.String()+" "+r.Unit, "yes"
		}
		if r.missed() {
			holds = "NO"
		}
		var numbers []string
		for _, note := range []string{r.Missing, r.Source, r.Remark} {
			if number := below.refer(note); number != "" {
				numbers = append(numbers, number)
			}
		}
		cells := []string{value, target, holds, r.Reference, strings.Join(numbers, ", ")}
		for i, c := range cells {
			cells[i] = orDash(plain(c))
		}
		fmt.Fprintln(out, metric+"\t"+strings.Join(cells, "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	// Subjects come between the lines when these are aligned: they are no cells.
	header, lines, _ := strings.Cut(aligned.String(), "\n")
	fmt.Fprintln(&text, header)
	subject := ""
	for i, line := range slices.Collect(strings.Lines(lines)) {
		if now := rows[i].Subject; now != subject && now != "" {
			fmt.Fprintln(&text, plain(now))
		}
		subject = rows[i].Subject
		text.WriteString(line)
	}
	if len(below) > 0 {
		text.WriteString("\n")
	}
	for i, note := range below {
		fmt.Fprintf(&text, "%d: %s\n", i+1, note)
	}
	_, err := fmt.Fprintf(w, "benchmark %s\n%s\n", name, text.String())
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func save(path string, rows []Row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
