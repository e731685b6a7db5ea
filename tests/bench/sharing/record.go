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
}

// moments are the values of a key that a tenant said with a word, within what is judged.
func (r record) moments(tenant int, word, key string) []time.Duration {
	var out []time.Duration
	for _, s := range r.spans(tenant, word, key, key) {
		out = append(out, s.from)
	}
	return out
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

// keep writes what happened to files, for people who look into a figure: tenant, start
// and end of each run on each card, in ns of CLOCK_MONOTONIC, what each tenant said,
// and the arbiter's log.
func (w *world) keep(c contender, rec record, log string) error {
	if w.traces == "" {
		return nil
	}
	w.plays++
	base := filepath.Join(w.traces, fmt.Sprintf("%03d-%s", w.plays, c.name))
	for i, runs := range rec.cards {
		file, err := os.Create(fmt.Sprintf("%s-card%d.csv", base, i))
		if err != nil {
			return err
		}
		out := csv.NewWriter(file)
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
