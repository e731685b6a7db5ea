// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "simdriver/gen:", err)
		os.Exit(1)
	}
}

// run writes all generated files below root, the root of the repository.
func run(root string) error {
	lists, err := readLists(filepath.Join(root, "tests", "testdata", "cuda"))
	if err != nil {
		return err
	}
	answers, err := readAnswers(filepath.Join(root, "tests", "testdata", "cuda"),
		filepath.Join(root, "cdi", "simdriver", "gen", "since-580.tsv"), lists)
	if err != nil {
		return err
	}
	results, err := readResults(filepath.Join(root, "cdi", "abi", "cuda_consts.h"))
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "cdi", "simdriver")
	for name, content := range map[string][]byte{
		"libcuda.map":                 versionScript(lists.exported),
		"cuda/zz_generated_stubs.c":   stubs(lists.exported),
		"cuda/zz_generated_answers.c": answersSource(answers),
		"cuda/zz_generated_results.c": resultsSource(results),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			continue // make would take it for new
		}
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // sources are for everybody
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
