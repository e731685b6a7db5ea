// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/tests/rig"
)

// record is what happened on the cards while tenants were at work.
type record struct {
	// cards have runs of the tenants, by their numbers.
	cards [][]run
	// judged is when everything had begun, and had not ended.
	judged span
	// lines that the tenants said.
	lines [][]rig.Line
	// idle is the percent of the time that the machine's processors had nothing to do.
	idle float64
	// standstills of the machine.
	standstills []span
}

// aftermath is how long shares make up for a time in which the machine stood still.
const aftermath = 300 * time.Millisecond

// windows of a width that the machine did not disturb, and a word on those that are left
// out. Where it disturbed all of them, they are all there is.
func (r record) windows(width, step time.Duration) ([]span, string) {
	all := windows(r.judged, width, step)
	left := calm(all, r.standstills, aftermath)
	if len(left) == 0 {
		return all, fmt.Sprintf("of %d windows, in all of which the machine stood still at times", len(all))
	}
	return left, fmt.Sprintf("of %d windows, without %d in which the machine stood still", len(left), len(all)-len(left))
}

// machine says how much of the machine was not used meanwhile, and how long it stood still.
func (r record) machine() string {
	stood := time.Duration(0)
	for _, s := range r.standstills {
		stood += s.within(r.judged).length()
	}
	return fmt.Sprintf("processors idle %.0f %%, stood still for %.0f ms", r.idle, stood.Seconds()*1000)
}

// moments are the values of a key that a tenant said with a word, within what is judged, where
// the machine did not stand still shortly before or for some time after.
func (r record) moments(tenant int, word, key string, after time.Duration) []time.Duration {
	var out []time.Duration
	for _, s := range r.spans(tenant, word, key, key) {
		if len(calm([]span{{s.from, s.from + after}}, r.standstills, recovery)) > 0 {
			out = append(out, s.from)
		}
	}
	return out
}

// recovery is how long requests queue up after a time in which the machine stood still.
const recovery = 30 * time.Millisecond

// unmeasured is why a figure cannot be taken, for who reads the report. What else goes
// wrong ends the run.
type unmeasured string

func (u unmeasured) Error() string { return string(u) }

// nothing is why there are no moments, or no requests, of the first tenant.
func (r record) nothing(word, key string) error {
	said := len(r.spans(0, word, key, key))
	if said == 0 {
		return unmeasured(fmt.Sprintf("no %s in the %s that were watched", word, r.judged.length()))
	}
	return unmeasured(fmt.Sprintf("the machine stood still near each %s, of which there were %d; %s", word, said, r.machine()))
}

// requests are those of a tenant that the machine did not disturb, from one of their times
// to their end.
func (r record) requests(tenant int, from string) []span {
	return calm(r.spans(tenant, "request", from, "done"), r.standstills, recovery)
}

// spans are those that a tenant said with a word, and that began within what is judged.
func (r record) spans(tenant int, word, from, to string) []span {
	var out []span
	for _, line := range r.lines[tenant] {
		first, ok := line.Number(from)
		last, also := line.Number(to)
		s := span{time.Duration(first), time.Duration(last)}
		if line.Word == word && ok && also && s.from >= r.judged.from && s.from < r.judged.to {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b span) int { return int(a.from - b.from) })
	return out
}

// scenariosFile says of which scenario the other files of a directory of traces are.
const scenariosFile = "scenarios.txt"

// openTraces makes the directory of traces, and begins its list.
func openTraces(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, scenariosFile), nil, 0o644)
}

// note whose files those are whose names begin so.
func (w *world) note(prefix string) error {
	list, err := os.OpenFile(filepath.Join(w.traces, scenariosFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(list, "%s\t%s\n", prefix, w.scenario)
	return errors.Join(err, list.Close())
}

// keep writes what happened to files, for people who look into a figure: tenant, start
// and end of each run on each card, in ns of CLOCK_MONOTONIC, what each tenant said,
// and the arbiter's log.
func (w *world) keep(c contender, rec record, log string) error {
	if w.traces == "" {
		return nil
	}
	w.plays++
	prefix := fmt.Sprintf("%03d-%s", w.plays, c.name)
	if err := w.note(prefix); err != nil {
		return err
	}
	base := filepath.Join(w.traces, prefix)
	for i, runs := range rec.cards {
		file, err := os.Create(fmt.Sprintf("%s-card%d.csv", base, i))
		if err != nil {
			return err
		}
		out := csv.NewWriter(file)
		out.Write([]string{"tenant", "from_ns", "to_ns"}) //nolint:errcheck // told by Error
		for _, r := range runs {
			out.Write([]string{ //nolint:errcheck // told by Error
				strconv.Itoa(r.tenant), strconv.FormatInt(int64(r.from), 10), strconv.FormatInt(int64(r.to), 10),
			})
		}
		out.Flush()
		if err := errors.Join(out.Error(), file.Close()); err != nil {
			return err
		}
	}
	for i, lines := range rec.lines {
		var text strings.Builder
		for _, line := range lines {
			fmt.Fprintln(&text, line.Text)
		}
		if err := os.WriteFile(fmt.Sprintf("%s-tenant%d.txt", base, i), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(base+".log", []byte(log), 0o644)
}
