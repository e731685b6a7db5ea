// SPDX-License-Identifier: Apache-2.0

// Package table writes what commands show: tables for people and JSON for
// programs. It keeps nothing, and everything may be used concurrently.
package table

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Nothing stands in a cell that has no value.
const Nothing = "-"

// Write writes rows of equally many cells, the first of them the headings, in columns
// without blanks at the ends of lines.
func Write(w io.Writer, rows [][]string) error {
	var aligned strings.Builder
	columns := tabwriter.NewWriter(&aligned, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(columns, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	if err := columns.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for line := range strings.Lines(aligned.String()) {
		if err := Line(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// Line writes a line before, between or instead of tables.
func Line(w io.Writer, text string) error {
	if _, err := fmt.Fprintln(w, text); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// WriteJSON writes v for programs.
func WriteJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write view: %w", err)
	}
	return nil
}

// OrNothing is the cell of a text that may be empty.
func OrNothing(s string) string {
	if s == "" {
		return Nothing
	}
	return s
}

// Memory is an amount as people write it in a claim: "24Gi", "81559Mi".
func Memory(m card.MiB) string { return resource.NewQuantity(m.Bytes(), resource.BinarySI).String() }
