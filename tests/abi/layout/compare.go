// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Comparison says what is compared.
type Comparison struct {
	// Dir has our headers: Header, and the files that it includes.
	Dir      string
	Header   string
	Includes []string
	// Other is the header that they are compared with, Flags what the compiler is
	// told for it.
	Other string
	Flags []string
	// Except are expressions that are not compared, and why not: facts that another
	// release changed.
	Except map[string]string
	// Prototypes are compared, too.
	Prototypes bool
	// Work is a directory for the programs.
	Work string
}

// Result counts what was compared.
type Result struct {
	Facts, Prototypes int
}

// Run compares, and returns an error that names each difference.
func (c Comparison) Run(ctx context.Context) (Result, error) {
	files := []string{filepath.Join(c.Dir, c.Header)}
	for _, name := range c.Includes {
		files = append(files, filepath.Join(c.Dir, name))
	}
	ours, err := parse(files...)
	if err != nil {
		return Result{}, err
	}
	text, err := os.ReadFile(c.Other)
	if err != nil {
		return Result{}, fmt.Errorf("read the other header: %w", err)
	}
	words := map[string]bool{}
	for _, word := range word.FindAllString(comments.ReplaceAllString(string(text), ""), -1) {
		words[word] = true
	}
	ours.facts = slices.DeleteFunc(ours.facts, func(f fact) bool {
		_, except := c.Except[f.expression]
		return except || slices.ContainsFunc(f.names, func(name string) bool { return !words[name] })
	})
	values, err := c.values(ctx, ours.facts)
	if err != nil {
		return Result{}, err
	}
	var result Result
	var program bytes.Buffer
	fmt.Fprintf(&program, "#include <stddef.h>\n#include %q\n", c.Other)
	for i, fact := range ours.facts {
		result.Facts++
		fmt.Fprintf(&program, "_Static_assert(%s == %s, \"%[1]s is %[2]s with us\");\n", fact.expression, values[i])
	}
	for _, p := range ours.prototypes {
		if !c.Prototypes || !words[p.name] {
			continue
		}
		result.Prototypes++
		fmt.Fprintf(&program, "_Static_assert(__builtin_types_compatible_p(__typeof__(&%s), %s), \"%[1]s is %[2]s with us\");\n", p.name, p.kind)
	}
	_, err = c.compile(ctx, "theirs.c", program.Bytes(), append(slices.Clone(c.Flags), "-fsyntax-only")...)
	return result, err
}

var word = regexp.MustCompile(`[A-Za-z_]\w*`)

// values asks a program for the values of our facts, in their order.
func (c Comparison) values(ctx context.Context, facts []fact) ([]string, error) {
	var program bytes.Buffer
	fmt.Fprintf(&program, "#include <stdio.h>\n#include <stddef.h>\n#include %q\nint main(void)\n{\n", c.Header)
	for _, fact := range facts {
		fmt.Fprintf(&program, "\tprintf(\"%%lldll\\n\", %s);\n", fact.expression)
	}
	program.WriteString("\treturn 0;\n}\n")
	binary, err := c.compile(ctx, "ours.c", program.Bytes(), "-I"+c.Dir, "-o", filepath.Join(c.Work, "ours"))
	if err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, binary).Output()
	if err != nil {
		return nil, fmt.Errorf("run our program: %w", err)
	}
	values := strings.Fields(string(output))
	if len(values) != len(facts) {
		return nil, fmt.Errorf("our program said %d values, not %d", len(values), len(facts))
	}
	return values, nil
}

// compile returns the last of its flags, which is the name of what it made.
func (c Comparison) compile(ctx context.Context, name string, program []byte, flags ...string) (string, error) {
	path := filepath.Join(c.Work, name)
	if err := os.WriteFile(path, program, 0o600); err != nil {
		return "", fmt.Errorf("write program: %w", err)
	}
	arguments := append([]string{"-std=c11", "-D_GNU_SOURCE", "-fmax-errors=20", path}, flags...)
	if output, err := exec.CommandContext(ctx, "cc", arguments...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w\n%s", name, err, output)
	}
	return flags[len(flags)-1], nil
}
