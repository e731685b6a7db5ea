// SPDX-License-Identifier: Apache-2.0

// Command gen writes the C of the sharing runtime that follows from
// cdi/runtime/hooks.tsv: wrappers, callers of the real functions, tables and the
// linker's version scripts. `make generate` runs it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-dra/tranche/cdi/runtime/gen/hooks"
)

//go:generate go run . -dir ..

func main() {
	dir := flag.String("dir", ".", "directory of hooks.tsv; files are written below it")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	table, err := hooks.Load(filepath.Join(dir, hooks.File))
	if err != nil {
		return err
	}
	for name, content := range hooks.Generate(table) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // sources are for everybody to read
			return fmt.Errorf("make directory of %s: %w", name, err)
		}
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			continue // make would take it for new
		}
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // the same
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
